"""Eager operations: how often they compile, and what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.compiler import eager
from maxtool.compiler.eager import EagerPrograms
from maxtool.compiler.targets import Targets
from maxtool.graph import Tensor, TensorType
from tests.effort import examples


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> tuple[EagerPrograms, list[str]]:
    """Programs of operations, and the types for which one was compiled."""
    compiled: list[str] = []
    build = eager.Program

    def counted(graphs: list, target: object) -> object:  # type: ignore[type-arg]
        compiled.append(", ".join(str(value.type) for value in graphs[0].inputs))
        return build(graphs, target)  # type: ignore[arg-type]

    monkeypatch.setattr(eager, "Program", counted)
    return EagerPrograms(Targets(), kept=3), compiled


def add(programs: EagerPrograms, *shapes: tuple[int, ...], op: str = "add") -> None:
    arrays = [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for shape in shapes]
    wanted = arrays[0] + arrays[1] if op == "add" else arrays[0] @ arrays[1]
    result = run(programs, op, *arrays, shape=wanted.shape)
    np.testing.assert_array_equal(result, wanted)


def run(
    programs: EagerPrograms, op: str, *arrays: np.ndarray, shape: Sequence[int], **options: object
) -> np.ndarray:
    """Return the result of an operation with one result, however often it is called."""
    operands = [Tensor(array) for array in arrays]
    kind = TensorType(operands[0].dtype, shape)
    (result,) = programs.prepared(op, [operand.type for operand in operands], options, [kind])(
        operands
    )
    assert result.type == kind
    return result.to_numpy()


def test_a_loop_over_lengths_compiles_twice(programs: tuple[EagerPrograms, list[str]]) -> None:
    result, compiled = programs
    for length in range(2, 60):
        add(result, (length, 3), (length, 3))
    assert compiled == ["float32[2, 3], float32[2, 3]", "float32[n0, 3], float32[n0, 3]"]
    add(result, (0, 3), (0, 3))
    add(result, (5, 3), (1, 3))
    assert compiled[2:] == ["float32[n0, 3], float32[1, 3]"]


@pytest.mark.long
def test_sizes_that_must_be_known_are_compiled_each(
    programs: tuple[EagerPrograms, list[str]],
) -> None:
    """A product takes any number of rows; other operations say what they need."""
    result, compiled = programs
    for rows in (2, 3, 4):
        add(result, (rows, 4), (4, 5), op="matmul")
    assert compiled == ["float32[2, 4], float32[4, 5]", "float32[n0, 4], float32[4, 5]"]
    for rows, width in ((2, 5), (2, 6), (3, 5), (4, 6), (7, 7)):
        x, w = np.ones((rows, 4), np.float32), np.ones((width, 4), np.float32)
        assert np.all(run(result, "linear", x, w, shape=[rows, width]) == 4)
    assert compiled[2:] == [
        "float32[2, 4], float32[5, 4]",
        "float32[2, 4], float32[6, 4]",
        "float32[n0, 4], float32[5, 4]",
        "float32[n0, 4], float32[6, 4]",
        "float32[n0, 4], float32[7, 4]",
    ]


def test_programs_that_were_not_used_are_dropped(
    programs: tuple[EagerPrograms, list[str]],
) -> None:
    result, compiled = programs
    for rank in (1, 2, 3):
        add(result, (2,) * rank, (2,) * rank)
    add(result, (2,), (2,))
    add(result, (2,) * 4, (2,) * 4)
    assert len(result) == 3
    add(result, (2,), (2,))
    assert len(compiled) == 4
    add(result, (2, 2), (2, 2))
    assert len(compiled) == 5


def test_threads_compile_once(programs: tuple[EagerPrograms, list[str]]) -> None:
    result, compiled = programs
    threads = [Thread(target=add, args=(result, (2, 2), (2, 2))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 1


def test_shapes_and_orders_are_not_compiled(programs: tuple[EagerPrograms, list[str]]) -> None:
    result, compiled = programs
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    results = run(result, "permute", x, shape=[3, 2], dims=(1, 0))
    np.testing.assert_array_equal(results, x.T)
    assert not np.shares_memory(results, x)
    assert not compiled


def shapes_of(count: int) -> st.SearchStrategy[list[tuple[int, ...]]]:
    """Shapes that broadcast to one another."""
    sizes = st.sampled_from([1, 2, 3, 7])
    whole = st.lists(sizes, min_size=2, max_size=3)

    def parts(shape: list[int]) -> st.SearchStrategy[tuple[int, ...]]:
        kept = st.tuples(*(st.sampled_from([1, size]) for size in shape))
        return st.tuples(kept, st.integers(0, 2)).map(lambda one: one[0][one[1] :])

    return whole.flatmap(lambda shape: st.lists(parts(shape), min_size=count, max_size=count))


@pytest.mark.long
@given(st.lists(shapes_of(2), min_size=2, max_size=8))
@settings(max_examples=examples(6, 40), deadline=None)
def test_whatever_came_before_elements_broadcast_as_numpys(
    calls: list[list[tuple[int, ...]]],
) -> None:
    programs = EagerPrograms(Targets())
    for left, right in calls:
        x = np.arange(np.prod(left), dtype=np.float32).reshape(left)
        y = np.arange(np.prod(right), dtype=np.float32).reshape(right) * 10
        wanted = x - y
        for _ in range(2):
            result = run(programs, "sub", x, y, shape=wanted.shape)
            np.testing.assert_array_equal(result, wanted)


@pytest.mark.long
@given(st.lists(st.lists(st.integers(1, 6), min_size=4, max_size=4), min_size=2, max_size=4))
@settings(max_examples=examples(2, 4), deadline=None)
def test_whatever_came_before_products_are_numpys(calls: list[list[int]]) -> None:
    programs = EagerPrograms(Targets())
    for batch, rows, depth, columns in calls:
        x = np.arange(batch * rows * depth, dtype=np.float32).reshape(batch, rows, depth)
        y = np.arange(depth * columns, dtype=np.float32).reshape(depth, columns)
        for right in (y, np.broadcast_to(y, (batch, *y.shape)), y[None]):
            wanted = x @ right
            result = run(programs, "matmul", x, right, shape=wanted.shape)
            np.testing.assert_array_equal(result, wanted)
