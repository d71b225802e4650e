"""Rows of a CPU: one thread works on each, with vectors."""

# ruff: noqa: ARG002 - what one kind of target does not need, another does

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.backend import Before, Body, Element, Emit, Load, Read
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.element_order import Combine, Fold
from maxtool.compiler.kernels.first_element import Ahead, FirstElement


class SingleThread:
    """One thread for a row, with vectors of ``width`` elements.

    The loops over a row may run no time at all, so what they start from is stored before them.
    """

    def __init__(self, width: int = 1) -> None:
        self._width = width

    def each(self, n: b.Index, body: Callable[[b.Expr], None]) -> None:
        """Run ``body(k)`` for every ``k`` below ``n``."""
        with T.serial(b.integer(n)) as k:
            body(k)

    def each_vector(self, n: b.Index, body: Body) -> None:
        """Run ``body(k, width)`` over ``n`` elements: vectors, then the rest."""
        if isinstance(n, int):
            b.each_vector(n, self._width, body)
            return
        whole = b.index(b.quotient(n, self._width))
        if self._width > 1:
            with T.serial(whole) as j:
                body(b.index(j * self._width), self._width)
        with T.serial(b.index(whole * self._width) if self._width > 1 else b.integer(0), n) as k:
            body(k, 1)

    def each_group(self, count: int, size: b.Expr, load: Load, body: Emit) -> None:
        """Run ``body(k, width, *load(g))`` group by group."""
        with T.serial(b.integer(count)) as g:
            loaded = [b.let(one) for one in load(g)]
            self.each_vector(size, lambda k, width: body(g * size + k, width, *loaded))

    def stream(self, n: b.Index, dtypes: Sequence[str], load: Load, body: Emit) -> None:
        """Run ``body(k, *load(k))`` for every ``k`` below ``n``."""
        self.each(n, lambda k: body(k, *[b.let(one) for one in load(k)]))

    def reduce(self, value: b.Expr, combine: Combine, dtype: str = "float32") -> b.Expr:
        """Return the value itself."""
        return value

    def fold(self, read: Read, n: b.Index, dtype: str, how: Fold) -> b.Expr:
        """Combine all elements of a row into one: vectors, then their elements and the rest."""
        combine, neutral = how
        width = self._width
        total = b.cell(neutral(dtype))
        whole = b.index(b.quotient(n, width)) if width > 1 else b.integer(0)
        if width > 1:
            sums = b.scratch((width,), dtype)
            b.store(sums, T.broadcast(neutral(dtype), width), (0,), width)
            with T.serial(whole) as j:
                value = b.let(read(j * width, width))
                b.store(sums, combine(b.load(sums, (0,), width), value), (0,), width)
            total.set(b.fold(b.load(sums, (0,), width), width, combine))
        with T.serial(b.index(whole * width), n) as k:
            total.set(combine(total.value, b.let(read(k, 1))))
        return total.value

    def running_sums(self, n: b.Expr, read: Element, write: Emit, dtype: str) -> None:
        """Add up one element after the other."""
        total = b.cell(tirx.const(0, dtype))
        with T.serial(n) as k:
            before = b.let(total.value)
            total.set(before + read(k))
            write(k, before, total.value)

    def merge_runs(
        self, n: b.Expr, run: b.Expr, read: Element, write: Emit, before: Before
    ) -> None:
        """Take the lesser of two at a time."""
        never = tirx.const(False, "bool")
        with T.serial(T.truncdiv(n + 2 * run - 1, 2 * run)) as pair:
            start = b.index(pair * 2 * run)
            middle, end = (b.index(b.least(start + step * run, n)) for step in (1, 2))
            left, right = b.cell(start), b.cell(middle)
            with T.serial(end - start) as step:
                one, two = (read(b.least(side.value, n - 1)) for side in (left, right))
                ahead = tirx.any(left.value >= middle, before(two, one, never))

                def take(place: b.Expr, side: b.Cell) -> None:
                    write(start + step, place)
                    side.add(b.integer(1))

                b.either(
                    tirx.all(right.value < end, ahead),
                    lambda: take(two, right),
                    lambda: take(one, left),
                )

    def first(self, dtype: str, ahead: Ahead) -> FirstElement:
        """Return a search for the element of a row that comes first by an order."""
        return FirstElement(dtype, ahead)

    @contextmanager
    def once(self) -> Iterator[None]:
        """Emit what one thread does, as it is."""
        yield

    def barrier(self) -> None:
        """Wait for nobody."""
