"""The element of a row that comes first by some order, found by the threads of a group together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.first_element import Ahead, FirstElement


class SharedFirstElement(FirstElement):
    """The element that comes first among those that all threads of a group were offered.

    The group has ``size`` threads, ``lane`` is this one, and ``several`` what emits code for
    several warps only.
    """

    def __init__(
        self,
        lane: b.Expr,
        size: int,
        several: Callable[[], AbstractContextManager[None]],
        dtype: str,
        ahead: Ahead,
    ) -> None:
        super().__init__(dtype, ahead)
        self._lane, self._warps, self._several = lane, size // b.WARP, several
        if self._warps > 1:
            self._partial = b.shared((self._warps,), dtype), b.shared((self._warps,), "int64")

    def settle(self) -> None:
        """Find the first among those of all threads; every thread knows it then."""
        with T.serial(b.int32(b.WARP.bit_length() - 1), unroll=False) as step:
            distance = b.let(T.shift_left(b.int32(1), step))
            pair = self.value.value, self.place.value
            self.compare(*(b.let(b.warp_across(one, distance)) for one in pair))
        if self._warps > 1:
            with self._several():
                self._settle_block()

    def _settle_block(self) -> None:
        values, places = self._partial
        b.barrier()  # nobody reads what was settled before
        with b.when(self._lane % b.WARP == 0):
            warp = self._lane // b.WARP
            b.store(values, self.value.value, (warp,))
            b.store(places, self.place.value, (warp,))
        b.barrier()
        with T.serial(b.int32(self._warps), unroll=False) as warp:
            self.compare(b.let(values[warp]), b.index(places[warp]))
