"""Eager operations: how often they compile, and what is kept."""

from __future__ import annotations

from threading import Thread

import numpy as np
import pytest

from maxtool.compiler import eager
from maxtool.compiler.eager import EagerPrograms
from maxtool.compiler.targets import Targets
from maxtool.dtype import DType
from maxtool.graph import Tensor, TensorType


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
    kind = TensorType(DType.float32, wanted.shape)
    (found,) = programs.evaluate(op, [Tensor(one) for one in arrays], {}, [kind])
    np.testing.assert_array_equal(found.to_numpy(), wanted)


def test_a_loop_over_lengths_compiles_twice(programs: tuple[EagerPrograms, list[str]]) -> None:
    made, compiled = programs
    for length in range(2, 60):
        add(made, (length, 3), (length, 3))
    assert compiled == ["float32[2, 3], float32[2, 3]", "float32[n0, 3], float32[n0, 3]"]
    add(made, (0, 3), (0, 3))
    add(made, (5, 3), (1, 3))
    assert compiled[2:] == ["float32[n0, 3], float32[1, 3]"]


def test_sizes_that_must_be_known_are_compiled_each(
    programs: tuple[EagerPrograms, list[str]],
) -> None:
    """A product takes any number of rows; other operations say what they need."""
    made, compiled = programs
    for rows in (2, 3, 4):
        add(made, (rows, 4), (4, 5), op="matmul")
    assert compiled == ["float32[2, 4], float32[4, 5]", "float32[n0, 4], float32[4, 5]"]
    x, w = (Tensor(np.ones(shape, np.float32)) for shape in ((2, 4), (5, 4)))
    for width in (5, 6):
        w = Tensor(np.ones((width, 4), np.float32))
        made.evaluate("linear", [x, w], {}, [TensorType(DType.float32, [2, width])])
    assert compiled[2:] == ["float32[2, 4], float32[5, 4]", "float32[2, 4], float32[6, 4]"]


def test_programs_that_were_not_used_are_dropped(
    programs: tuple[EagerPrograms, list[str]],
) -> None:
    made, compiled = programs
    for rank in (1, 2, 3):
        add(made, (2,) * rank, (2,) * rank)
    add(made, (2,), (2,))
    add(made, (2,) * 4, (2,) * 4)
    assert len(made) == 3
    add(made, (2,), (2,))
    assert len(compiled) == 4
    add(made, (2, 2), (2, 2))
    assert len(compiled) == 5


def test_threads_compile_once(programs: tuple[EagerPrograms, list[str]]) -> None:
    made, compiled = programs
    threads = [Thread(target=add, args=(made, (2, 2), (2, 2))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 1


def test_shapes_and_orders_are_not_compiled(programs: tuple[EagerPrograms, list[str]]) -> None:
    made, compiled = programs
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    kind = TensorType(DType.float32, [3, 2])
    (found,) = made.evaluate("permute", [Tensor(x)], {"dims": (1, 0)}, [kind])
    np.testing.assert_array_equal(found.to_numpy(), x.T)
    assert not np.shares_memory(found.to_numpy(), x)
    assert not compiled
