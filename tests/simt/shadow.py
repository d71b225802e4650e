"""Last accesses of each memory unit: races and uninitialised reads, for whole arrays.

Times are ``barriers of the block << WARP_BITS | synchronisations of the warp``; threads are
numbered over the whole launch, each block starting at a multiple of a warp.
"""

from __future__ import annotations

import numpy as np

from tests.simt.dtypes import Array
from tests.simt.faults import Race
from tests.simt.scope import WARP_BITS, WARP_SHIFT, Chunk

# How many threads have read a place since it was last ordered with its block.
NONE, ONE, WARP_WIDE, BLOCK_WIDE, GRID_WIDE = range(5)


class Shadow:
    """The last write and the last reads of each unit of an allocation.

    Args:
        units: How many units.
        name: Of the buffer, for messages.
        of_block: Whether each unit is of one block alone.
    """

    def __init__(self, units: int, name: str, *, of_block: bool) -> None:
        self.name = name
        self.of_block = of_block
        self.write_time = np.full(units, -1, np.int64)
        self.writer = np.full(units, -1, np.int64)
        self.read_time = np.full(units, -1, np.int64)
        self.reader = np.full(units, -1, np.int64)
        self.readers = np.zeros(units, np.int8)

    def read(self, chunk: Chunk, units: Array, who: Array, time: Array) -> None:
        """Threads ``who`` read ``units`` (arrays of one shape)."""
        last = self.writer[units]
        other = (last >= 0) & (last != who)
        if other.any():
            result = other & ~self._ordered(
                chunk, last, self.write_time[units], who, time, alone=True
            )
            if result.any():
                self._report(chunk, result, units, who, last, "reads", "wrote")
        self._note_readers(chunk, units, who, time)

    def write(
        self, chunk: Chunk, units: Array, who: Array, time: Array, harmless: Array | None = None
    ) -> None:
        """Threads ``who`` write ``units``.

        ``harmless`` says where the value stays as it was; several threads may then write it, and
        the caller sees to those that write one place at the same time.
        """
        self._after_writes(chunk, units, who, time, harmless)
        self._after_reads(chunk, units, who, time)
        self.writer[units], self.write_time[units] = who, time
        self.readers[units] = NONE
        clash = self.writer[units] != who
        if harmless is None and clash.any():
            self._report(chunk, clash, units, who, self.writer[units], "writes", "writes too")

    def _after_writes(
        self, chunk: Chunk, units: Array, who: Array, time: Array, harmless: Array | None
    ) -> None:
        last = self.writer[units]
        other = (last >= 0) & (last != who)
        if harmless is not None:
            other &= ~harmless
        if not other.any():
            return
        result = other & ~self._ordered(chunk, last, self.write_time[units], who, time, alone=True)
        if result.any():
            self._report(chunk, result, units, who, last, "writes", "wrote")

    def _after_reads(self, chunk: Chunk, units: Array, who: Array, time: Array) -> None:
        readers, last = self.readers[units], self.reader[units]
        other = (readers > ONE) | ((readers == ONE) & (last != who))
        if not other.any():
            return
        inside = self._ordered(chunk, last, self.read_time[units], who, time, readers <= WARP_WIDE)
        result = other & ~(inside & (readers < GRID_WIDE))
        if result.any():
            self._report(chunk, result, units, who, last, "writes", "(or another) read")

    def _note_readers(self, chunk: Chunk, units: Array, who: Array, time: Array) -> None:
        before = self._readers_before(chunk, units, who, time)
        self.reader[units], self.read_time[units] = who, time
        self.readers[units] = ONE
        winner = self.reader[units]
        if before is None and (winner == who).all():
            return
        level = self._apart(chunk, winner, who)
        if before is not None:
            level = np.maximum(level, before)
        for some in range(WARP_WIDE, GRID_WIDE + 1):  # the widest last: units may repeat
            at = level == some
            if at.any():
                self.readers[units[at]] = some

    def _readers_before(self, chunk: Chunk, units: Array, who: Array, time: Array) -> Array | None:
        """Return the distance of unordered earlier readers."""
        readers = self.readers[units]
        if not readers.any():
            return None
        last = self.reader[units]
        now = self.read_time[units] >> WARP_BITS == time >> WARP_BITS
        if not self.of_block:
            now |= ~chunk.same_block(last, who) | (readers == GRID_WIDE)
        counts = now & (readers != NONE)
        if not counts.any():
            return None
        level: Array = np.where(counts, np.maximum(readers, self._apart(chunk, last, who)), ONE)
        return level

    def _report(
        self, chunk: Chunk, array: Array, units: Array, who: Array, last: Array, does: str, did: str
    ) -> None:
        at = tuple(np.argwhere(array)[0])
        me, it = chunk.name_who(int(who[at])), chunk.name_who(int(last[at]))
        raise Race(
            f"race on {self.name}, unit {int(units[at])}: {me} {does} what {it} {did}, "
            "and nothing orders the two"
        )

    def _ordered(
        self, chunk: Chunk, last: Array, then: Array, who: Array, now: Array, alone: Array | bool
    ) -> Array:
        """Return whether a barrier of the block, or of the warp if ``alone``, lies between."""
        ordered: Array = then >> WARP_BITS != now >> WARP_BITS
        if not ordered.all():
            ordered |= (then != now) & (last >> WARP_SHIFT == who >> WARP_SHIFT) & alone
        return ordered if self.of_block else ordered & chunk.same_block(last, who)

    def _apart(self, chunk: Chunk, last: Array, who: Array) -> Array:
        """Return how far two threads are from each other."""
        level: Array = (last != who).astype(np.int8) + np.int8(ONE)
        level += last >> WARP_SHIFT != who >> WARP_SHIFT
        if not self.of_block:
            level += ~chunk.same_block(last, who)
        return level
