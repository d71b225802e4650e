"""The element of a row that comes first by some order, found by the threads of a group together."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.first_element import Ahead, FirstElement


class Group(Protocol):
    """The threads that search."""

    @property
    def lane(self) -> b.Expr:
        """Number of this thread, int32."""

    @property
    def size(self) -> int:
        """Number of threads."""

    def several(self) -> AbstractContextManager[None]:
        """Emit what is for several warps only."""


class SharedFirstElement(FirstElement):
    """The element that comes first among those that all threads of a group were offered."""

    def __init__(self, group: Group, dtype: str, ahead: Ahead) -> None:
        super().__init__(dtype, ahead)
        self._group, self._warps = group, group.size // b.WARP
        if self._warps > 1:
            self._partial = b.shared((self._warps,), dtype), b.shared((self._warps,), "int64")

    def settle(self) -> None:
        """Find the first among those of all threads; every thread knows it then."""
        with T.serial(b.int32(b.WARP.bit_length() - 1), unroll=False) as step:
            distance = b.let(T.shift_left(b.int32(1), step))
            pair = self.value.value, self.place.value
            self.compare(*(b.let(b.warp_across(one, distance)) for one in pair))
        if self._warps > 1:
            with self._group.several():
                self._settle_block()

    def _settle_block(self) -> None:
        values, places = self._partial
        b.barrier()  # nobody reads what was settled before
        with b.when(self._group.lane % b.WARP == 0):
            warp = self._group.lane // b.WARP
            b.store(values, self.value.value, (warp,))
            b.store(places, self.place.value, (warp,))
        b.barrier()
        with T.serial(b.int32(self._warps), unroll=False) as warp:
            self.compare(b.let(values[warp]), b.index(places[warp]))
