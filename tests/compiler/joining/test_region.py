"""Parallel regions: kernels in any order of dependence, whatever thread is ahead of the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import tirx
from tvm.tirx.script.builder import ir as T  # noqa: N812 - TVM's own name for it

from maxtool.compiler.joining.instance import instance, lowered
from maxtool.compiler.joining.region import BARRIER, LAUNCH, CannotJoinError, Region, parts_of
from maxtool.compiler.joining.sizes import buffer_of, count_of
from maxtool.compiler.joining.workspace import Workspace
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import subroutines

SIZE, BUFFERS, THREADS = 6, 4, 3
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Step:
    """``target[i] = source[(i + shift) % SIZE] + 1``, by all threads or by the first.

    ``called`` says whether a subroutine does it.
    """

    source: int
    target: int
    shift: int
    alone: bool
    called: bool = False

    def elements(self, thread: int, threads: int) -> range:
        """The elements that a thread computes: a loop is cut into equal parts."""
        if self.alone:
            return range(SIZE if thread == 0 else 0)
        each = -(-SIZE // threads)
        return range(min(thread * each, SIZE), min((thread + 1) * each, SIZE))

    def run(self, memory: Array, elements: range) -> None:
        for i in elements:
            memory[self.target, i] = memory[self.source, (i + self.shift) % SIZE] + 1


# One that reads where it writes would need an order of its own elements.
STEPS = st.builds(
    Step,
    source=st.integers(0, BUFFERS - 1),
    target=st.integers(0, BUFFERS - 1),
    shift=st.integers(0, SIZE - 1),
    alone=st.booleans(),
    called=st.booleans(),
).filter(lambda step: step.source != step.target)


def add_one(target: Any, source: Any, i: Any, shift: int) -> None:
    at = T.truncmod(i + b.integer(shift), b.integer(SIZE))
    b.store(target, b.load(source, (at,)) + T.float32(1), (i,))


def kernel(step: Step) -> Any:
    with b.kernel("step") as made:
        source, target = (made.argument(name, (SIZE,)) for name in ("source", "target"))

        def element(i: Any) -> None:
            if step.called:
                subroutines.call(add_one, [target], source, i, step.shift)
            else:
                add_one(target, source, i, step.shift)

        b.each(SIZE, element, threads=not step.alone)
    return lowered(made.function, [(SIZE,), (SIZE,)])


def joined(steps: Sequence[Step]) -> Any:
    """The statement of the region of all steps."""
    buffers = [buffer_of("memory", [SIZE], "float32") for _ in range(BUFFERS)]
    region = Region()
    for step in steps:
        operands = [buffers[step.source], buffers[step.target]]
        region.add(parts_of(instance(kernel(step), operands, [(SIZE,)] * 2, Workspace())))
    return region.statement


def stretches(statement: Any, steps: Sequence[Step]) -> list[list[Step]]:
    """The steps between barriers, as the region has them."""
    (launch,) = statement.seq if isinstance(statement, tirx.SeqStmt) else [statement]
    assert launch.attr_key == LAUNCH
    body = launch.body.seq if isinstance(launch.body, tirx.SeqStmt) else [launch.body]
    found: list[list[Step]] = [[]]
    for step, each in zip(steps, body, strict=True):
        found[-1].append(step)
        if isinstance(each, tirx.AttrStmt):
            assert each.attr_key == BARRIER
            found.append([])
    return found


def results(parts: Sequence[Sequence[Step]]) -> Iterator[Array]:
    """Yield what comes out, for each order in which threads may reach the barriers."""
    for order in permutations(range(THREADS)):
        memory = start()
        for stretch in parts:
            for thread in order:
                for step in stretch:
                    step.run(memory, step.elements(thread, THREADS))
        yield memory


def start() -> Array:
    return np.arange(BUFFERS * SIZE, dtype=np.float64).reshape(BUFFERS, SIZE) ** 2


def expected(steps: Sequence[Step]) -> Array:
    memory = start()
    for step in steps:
        step.run(memory, range(SIZE))
    return memory


@given(st.lists(STEPS, min_size=1, max_size=8))
def test_any_thread_may_be_ahead(steps: list[Step]) -> None:
    for memory in results(stretches(joined(steps), steps)):
        np.testing.assert_array_equal(memory, expected(steps))


@given(st.lists(STEPS, min_size=2, max_size=6))
def test_each_barrier_parts_two_that_share_memory(steps: list[Step]) -> None:
    """Between two barriers something conflicts with what follows the second."""
    parts = stretches(joined(steps), steps)
    for before, after in pairwise(parts):
        assert any(conflict(one, after[0]) for one in before)


def conflict(one: Step, other: Step) -> bool:
    if one.alone and other.alone:
        return False
    return one.target in (other.source, other.target) or one.source == other.target


def test_independent_kernels_have_no_barrier() -> None:
    steps = [Step(0, target, 1, alone=False) for target in (1, 2, 3)]
    assert len(stretches(joined(steps), steps)) == 1


def test_the_first_thread_does_not_wait_for_itself() -> None:
    steps = [Step(i, i + 1, 1, alone=True) for i in range(3)]
    assert len(stretches(joined(steps), steps)) == 1


def with_body(body: Any) -> list[Any]:
    with b.kernel("odd") as made:
        x, y = (made.argument(name, (SIZE,)) for name in "xy")
        body(x, y)
    buffers = [buffer_of("memory", [SIZE], "float32") for _ in "xy"]
    shapes = [(SIZE,)] * 2
    return instance(lowered(made.function, shapes), buffers, shapes, Workspace())


def nested(x: Any, y: Any) -> None:
    with T.serial(b.integer(3)):
        b.each(SIZE, lambda i: b.store(y, x[i], (i,)), threads=True)


def private(x: Any, y: Any) -> None:
    kept = b.let(x[0] + T.float32(1))
    b.each(SIZE, lambda i: b.store(y, kept, (i,)), threads=True)


@pytest.mark.parametrize("body", [nested, private])
def test_what_cannot_be_shared_is_refused(body: Any) -> None:
    with pytest.raises(CannotJoinError):
        parts_of(with_body(body))


def test_what_a_scalar_was_read_from_may_not_be_overwritten_behind_it() -> None:
    def scalar(x: Any, y: Any) -> None:
        first = T.Bind(x[0])
        b.each(SIZE, lambda i: b.store(x, first + y[i], (i,)), threads=True)

    region = Region()
    with pytest.raises(CannotJoinError, match="scalar"):
        region.add(parts_of(with_body(scalar)))


def test_a_short_loop_is_for_all_threads() -> None:
    """Threads are there anyway, and whether a loop is short may be known when it runs only."""
    with b.kernel("short") as made:
        rows = made.dim("rows")
        x, y = (made.argument(name, (rows, 3)) for name in "xy")
        b.each_row(rows, 3, lambda i: b.store(y, x[i, 0], (i, 0)))
    shapes = [(tirx.Var("rows", "int64"), 3)] * 2
    buffers = [buffer_of("memory", [count_of(shape)], "float32") for shape in shapes]
    own = instance(lowered(made.function, shapes), buffers, shapes, Workspace())
    (part,) = parts_of(own)
    assert part.statement.kind == tirx.ForKind.PARALLEL
    assert not part.alone


def test_memory_that_may_be_the_same_is_taken_for_the_same() -> None:
    buffers = [buffer_of("memory", [SIZE], "float32") for _ in range(4)]
    steps = [Step(0, 1, 1, alone=False), Step(2, 3, 1, alone=False)]
    region = Region({hash(buffers[1]): -1, hash(buffers[2]): -1})
    for step in steps:
        operands = [buffers[step.source], buffers[step.target]]
        region.add(parts_of(instance(kernel(step), operands, [(SIZE,)] * 2, Workspace())))
    assert len(stretches(region.statement, steps)) == 2
