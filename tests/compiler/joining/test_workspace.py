"""Memory between joined kernels: shared by tensors that are not needed at the same time."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tvm import tirx

from maxtool.compiler.joining.sizes import are_same, count_of, factors_of
from maxtool.compiler.joining.workspace import LEAST_SHARED, Workspace
from maxtool.dtype import DType

BATCH, OTHER = tirx.Var("batch", "int64"), tirx.Var("other", "int64")
TYPES = ("float32", "int8")

SIZES = st.tuples(
    st.sampled_from([None, BATCH, OTHER]),
    st.integers(1, 64),
    st.sampled_from([1, 100, 1000, 40000]),
    st.sampled_from(TYPES),
)


def room(count: Any, batch: int) -> int:
    """The number of a count of elements, where a variable is ``batch`` and the other one 1."""
    number, text = factors_of(count)
    return number * (batch if text == "batch" else 1)


@given(st.lists(st.tuples(SIZES, st.integers(0, 3)), max_size=20))
def test_memory_in_use_is_nobody_elses(steps: list[tuple[Any, int]]) -> None:
    """Each step takes memory for a tensor, and then gives some of what is in use back."""
    workspace, used = Workspace(), list[Any]()
    for (variable, rows, columns, dtype), given_back in steps:
        sizes = [size for size in (variable, rows, columns) if size is not None]
        memory = workspace.take(sizes, dtype)
        assert all(memory is not other for other in used)
        assert str(memory.dtype) == dtype
        (has,) = memory.shape
        assert factors_of(has)[1] == factors_of(count_of(sizes))[1]
        assert all(room(has, batch) >= room(count_of(sizes), batch) for batch in (1, 7))
        used.append(memory)
        for _ in range(min(given_back, len(used))):
            workspace.give_back(used.pop(0))
    assert len(workspace.statements) == len(workspace.own)


def test_large_memory_is_used_again_and_the_smallest_that_suffices() -> None:
    workspace = Workspace()
    large, small, other = (workspace.take((BATCH, n), "float32") for n in (90000, 50000, 70000))
    for memory in (large, small, other):
        workspace.give_back(memory)
    assert workspace.take((BATCH, 200, 300), "float32") is other
    assert workspace.take((300, BATCH, 200), "float32") is large
    assert len(workspace.shared) == 3
    assert workspace.take((60000,), "float32") is workspace.shared[3]
    assert not workspace.statements


def test_small_memory_is_not_used_again() -> None:
    workspace = Workspace()
    count = LEAST_SHARED // DType.float32.size_in_bytes - 1
    for size in (count, count + 1):
        workspace.give_back(workspace.take((size,), "float32"))
    assert workspace.take((count,), "float32") is workspace.own[1]
    assert len(workspace.shared) == 1


def test_counts_are_simplified() -> None:
    assert count_of((3, 5, 7)) == 105
    assert factors_of(count_of((3, BATCH, 7))) == (21, "batch")
    assert factors_of(count_of((BATCH + 1, 4)))[1] != "batch"
    assert count_of(()) == 1


def test_sizes_are_the_same_if_they_are_written_so() -> None:
    assert are_same((BATCH, 3), (BATCH, 3))
    assert not are_same((BATCH, 3), (OTHER, 3))
    assert not are_same((BATCH, 3), (BATCH, 4))
    assert not are_same((3,), (3, 1))
