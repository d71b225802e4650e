"""Which element of a row comes first by some order, and where it is."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda.rows import Team
from maxtool.compiler.kernels.ordering import equal

Ahead = Callable[[b.Expr, b.Expr], b.Expr]


class Leader:
    """The element that comes first, found by all threads of a team.

    Of equal elements it is the one at the lowest place.

    Args:
        team: The threads.
        kind: The type that elements are computed with.
        ahead: Whether one element comes before another.
    """

    def __init__(self, team: Team, kind: str, ahead: Ahead) -> None:
        self.team, self.kind, self.ahead = team, kind, ahead
        self.value = b.scratch((1,), kind)
        self.place = b.scratch((1,), "int64")
        self.warps = team.size // b.WARP
        if self.warps > 1:
            self.partial = b.shared((self.warps,), kind), b.shared((self.warps,), "int64")

    def clear(self) -> None:
        """Begin: no element has been offered, and the place is -1."""
        b.store(self.value, tirx.const(0, self.kind), (0,))
        b.store(self.place, b.integer(-1), (0,))

    def offer(self, value: b.Expr, place: b.Expr) -> None:
        """Consider an element, whose place is above those of all that this thread has offered."""
        with b.when(tirx.any(self.place[0] < 0, self.ahead(value, self.value[0]))):
            self._take(value, place)

    def settle(self) -> None:
        """Find the first among those of all threads; every thread knows it then."""
        with T.serial(b.int32(b.WARP.bit_length() - 1), unroll=False) as step:
            distance = b.let(T.shift_left(b.int32(1), step))
            pair = (self.value[0], self.kind), (self.place[0], "int64")
            self._compare(*(b.let(b.warp_across(one, distance)) for one, kind in pair))
        if self.warps > 1:
            with self.team.several():
                self._settle_block()

    def _settle_block(self) -> None:
        values, places = self.partial
        b.barrier()  # nobody reads what was settled before
        with b.when(self.team.lane % b.WARP == 0):
            warp = self.team.lane // b.WARP
            b.store(values, self.value[0], (warp,))
            b.store(places, self.place[0], (warp,))
        b.barrier()
        with T.serial(b.int32(self.warps), unroll=False) as warp:
            self._compare(b.let(values[warp]), b.index(places[warp]))

    def _compare(self, value: b.Expr, place: b.Expr) -> None:
        mine = self.value[0]
        lower = tirx.all(equal(value, mine, self.kind), place < self.place[0])
        wins = tirx.any(self.place[0] < 0, self.ahead(value, mine), lower)
        with b.when(tirx.all(place >= 0, wins)):
            self._take(value, place)

    def _take(self, value: b.Expr, place: b.Expr) -> None:
        b.store(self.value, value, (0,))
        b.store(self.place, place, (0,))
