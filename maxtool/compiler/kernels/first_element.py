"""The element of a row that comes first by some order, and its index."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tvm import tirx

from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.element_order import equal

Ahead: TypeAlias = Callable[[b.Expr, b.Expr], b.Expr]


class FirstElement:
    """The element that comes first, of equal elements the one with the lowest index.

    As it is, one thread has found it; for several, ``settle`` is overridden. ``ahead`` says whether
    one element comes before another; ``place`` is the index, -1 while there is none.
    """

    def __init__(self, dtype: str, ahead: Ahead) -> None:
        self.dtype, self.ahead = dtype, ahead
        self.value = b.cell(dtype=dtype)
        self.place = b.cell(dtype="int64")

    def clear(self) -> None:
        """Begin: no element has been offered."""
        self.value.set(tirx.const(0, self.dtype))
        self.place.set(b.integer(-1))

    def offer(self, value: b.Expr, place: b.Expr) -> None:
        """Consider an element whose index is above those of all that this thread has offered."""
        with b.when(tirx.any(self.place.value < 0, self.ahead(value, self.value.value))):
            self._take(value, place)

    def settle(self) -> None:
        """Find the first among those of all threads; every thread knows it then."""

    def compare(self, value: b.Expr, place: b.Expr) -> None:
        """Consider an element that another thread has found, if its index is not negative."""
        own = self.value.value
        lower = tirx.all(equal(value, own, self.dtype), place < self.place.value)
        wins = tirx.any(self.place.value < 0, self.ahead(value, own), lower)
        with b.when(tirx.all(place >= 0, wins)):
            self._take(value, place)

    def _take(self, value: b.Expr, place: b.Expr) -> None:
        self.value.set(value)
        self.place.set(place)
