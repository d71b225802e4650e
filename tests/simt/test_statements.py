"""Statements do what LLVM's do: conditions, loops and arrays that differ from thread to thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import tirx
from tvm.tirx.script.builder import ir as T  # noqa: N812 - TVM's own name for it

from maxtool.compiler.kernels.cuda import builder as b
from tests.simt import run
from tests.simt.test_arithmetic import (
    MACHINE,
    SIZE,
    THREADS,
    Repeated,
    Term,
    Terms,
    arrays,
    as_loops,
    as_threads,
)

HELD = 4
LIMIT = 1000
TYPES = ("int32", "float32")


class LocalTerms(Terms):
    """Expressions of what a thread holds too: its arrays, the loops that it is in."""

    def __init__(self, data: Any, inputs: dict[str, Any], at: Any, held: dict[str, Any]) -> None:
        super().__init__(data, inputs, at)
        self._held = held
        self.loops: list[Any] = []

    def place(self, depth: int) -> Any:
        """An element of an array, the same for all threads or not."""
        if self.number(0, 1):
            return self.number(0, HELD - 1)
        return tirx.bitwise_and(self.draw("int32", depth).value, tirx.const(HELD - 1, "int32"))

    def _leaf(self, dtype: str) -> Term:
        kind = self.number(0, 3)
        if kind == 0 and dtype in self._held:
            return Term(self._held[dtype][self.number(0, HELD - 1)], LIMIT)
        if kind == 1 and dtype == "int32" and self.loops:
            return Term(self.loops[-1], LIMIT)
        return super()._leaf(dtype)


class Statements:
    """Draws statements that change the arrays of a thread."""

    def __init__(self, terms: LocalTerms, held: dict[str, Any]) -> None:
        self._terms = terms
        self._held = held

    def draw(self, depth: int) -> None:
        """A few statements in turn."""
        kinds = (self._store, self._condition, self._loop, self._while)
        for _ in range(self._terms.number(1, 2)):
            (self._store if not depth else kinds[self._terms.number(0, 3)])(depth)

    def _store(self, _depth: int) -> None:
        dtype = TYPES[self._terms.number(0, 1)]
        value = self._terms.draw(dtype, 2).value
        # Also after a thousand of them it is a number that the expressions can take.
        low, high = tirx.const(-LIMIT, dtype), tirx.const(LIMIT, dtype)
        b.store(self._held[dtype], tirx.max(tirx.min(value, high), low), (self._terms.place(1),), 1)

    def _condition(self, depth: int) -> None:
        with T.If(self._terms.draw("bool", 2).value):
            with T.Then():
                self.draw(depth - 1)
            if self._terms.number(0, 1):
                with T.Else():
                    self.draw(depth - 1)

    def _loop(self, depth: int) -> None:
        extent = tirx.bitwise_and(self._terms.draw("int32", 1).value, tirx.const(3, "int32"))
        kinds: tuple[Callable[[Any], Any], ...] = (T.serial, lambda _: T.unroll(3))
        with kinds[self._terms.number(0, 1)](extent) as i:
            self._terms.loops.append(i)
            self.draw(depth - 1)
            self._terms.loops.pop()

    def _while(self, depth: int) -> None:
        left = b.scratch((1,), "int32")
        times = tirx.bitwise_and(self._terms.draw("int32", 1).value, tirx.const(3, "int32"))
        b.store(left, times, (0,), 1)
        with T.While(left[0] > 0):
            self.draw(depth - 1)
            b.store(left, left[0] - 1, (0,), 1)


def kernel(data: Any, over: Callable[[], Any]) -> Any:
    with b.kernel("statements") as result:
        names = ("int32", "int64", "uint32", "float32")
        inputs = {dtype: result.argument(dtype, (SIZE,), dtype) for dtype in names}
        results = {dtype: result.argument(f"{dtype}_out", (SIZE, HELD), dtype) for dtype in TYPES}
        with over() as (block, thread):
            at = block * THREADS + thread
            held = {dtype: b.scratch((HELD,), dtype) for dtype in TYPES}
            for i in range(HELD):
                for dtype in TYPES:
                    b.store(held[dtype], inputs[dtype][at], (i,), 1)
            Statements(LocalTerms(data, inputs, at, held), held).draw(3)
            for i in range(HELD):
                for dtype in TYPES:
                    b.store(results[dtype], held[dtype][i], (at, i), 1)
    return result.function


@given(st.data())
@settings(max_examples=5, deadline=None)
def test_threads_do_what_loops_do(data: Any) -> None:
    drawn: Any = Repeated(data)
    threads = kernel(drawn, as_threads)
    drawn.rewind()
    loops = tvm.compile(tvm.IRModule({"main": kernel(drawn, as_loops)}), target=MACHINE)
    taken, actual = arrays(), [np.zeros((SIZE, HELD), dtype) for dtype in TYPES]
    run(threads, *taken, *actual)
    expected = [tvm.runtime.tensor(np.zeros((SIZE, HELD), dtype)) for dtype in TYPES]
    loops["main"](*(tvm.runtime.tensor(array) for array in taken), *expected)
    for mine, its in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(mine, its.numpy())
