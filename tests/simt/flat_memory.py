"""Global and shared memory: bytes that threads share."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.simt.dtypes import Array, Value, uniform
from tests.simt.faults import OutOfBounds, Race, Uninitialised, Unsupported
from tests.simt.memory import outside, require_aligned, thread_name
from tests.simt.scope import Scope
from tests.simt.shadow import Shadow


class FlatMemory:
    """Memory that threads share: bytes, with what is known of each unit of them.

    Args:
        name: Of the buffer, for messages.
        data: The bytes.
        unit: Bytes that are tracked as one; no access is narrower.
        per_block: Bytes from one block's to the next one's for shared memory, 0 for global memory.
        extent: Bytes that an index may reach.
        written: Of each unit, whether something wrote it; None if all of it is.
        tracked: Whether races are looked for; not in what is only read.
    """

    def __init__(
        self,
        name: str,
        data: Array,
        unit: int,
        *,
        extent: int,
        per_block: int = 0,
        written: Array | None = None,
        tracked: bool = True,
    ) -> None:
        self.name = name
        self.data = data
        self.unit = unit
        self.extent = extent
        self.per_block = per_block
        self.written = written
        self.tracked = tracked
        self.shadow: Shadow | None = None
        self.pending: Array | None = None
        self._views: dict[np.dtype[Any], Array] = {}

    def begin_launch(self) -> None:
        """Order all previous accesses before the launch."""
        if self.tracked:
            units = -(-len(self.data) // self.unit)
            self.shadow = Shadow(units, self.name, of_block=bool(self.per_block))

    def view(self, dtype: np.dtype[Any]) -> Array:
        """The memory as elements of a type."""
        if dtype not in self._views:
            whole = len(self.data) // dtype.itemsize * dtype.itemsize
            self._views[dtype] = self.data[:whole].view(dtype)
        return self._views[dtype]

    def load(self, scope: Scope, index: Value, dtype: np.dtype[Any], count: int) -> Value:
        start = self.start(scope, index, dtype, count)
        if self.shadow is not None or self.written is not None:
            self.note_read(scope, start, dtype.itemsize * count)
        return self.view(dtype)[_elements(start, dtype, count)]

    def store(
        self, scope: Scope, index: Value, dtype: np.dtype[Any], count: int, value: Value
    ) -> None:
        start = _spread(scope, self.start(scope, index, dtype, count))
        view, places = self.view(dtype), _elements(start, dtype, count)
        values = np.broadcast_to(np.asarray(value, dtype), places.shape)
        size = dtype.itemsize * count
        if self.per_block or self.shadow is None:
            self.note_write(scope, start, size)
            view[places] = values
            return
        same = _same_bits(view[places], values)
        self.note_write(scope, start, size, _per_unit(same, self.units(start, size)))
        view[places] = values
        if not (kept := _same_bits(view[places], values)).all():
            who = thread_name(scope, int(np.argwhere(~kept)[0][-1]))
            raise Race(f"{who} and another one write different values to one place of {self.name}")

    def start(self, scope: Scope, index: Value, dtype: np.dtype[Any], count: int) -> Value:
        """The byte that an access starts at, checked."""
        require_aligned(index, dtype, count, self.name)
        low, high = (index, index) if uniform(index) else (index.min(), index.max())
        limit = self.extent // dtype.itemsize
        if low < 0 or high + count > limit:
            raise OutOfBounds(outside(scope, self.name, index, count, limit))
        if uniform(index) and not self.per_block:
            return int(index) * dtype.itemsize
        byte = np.asarray(index, np.int64) * dtype.itemsize
        if not self.per_block:
            return byte
        assert scope.chunk is not None
        return byte + scope.of(scope.chunk.block) * self.per_block

    def units(self, start: Array, size: int) -> Array:
        """The units that accesses of ``size`` bytes touch: [..., threads]."""
        if size < self.unit:
            raise Unsupported(f"an access of {size} bytes in {self.name}, kept by {self.unit}")
        first = start // self.unit
        many = size // self.unit
        return first if many == 1 else first + np.arange(many).reshape(-1, *[1] * start.ndim)

    def note_read(self, scope: Scope, start: Value, size: int) -> None:
        """Threads read ``size`` bytes each."""
        units = self.units(_spread(scope, start), size)
        if self.written is not None and not (known := self.written[units]).all():
            raise Uninitialised(f"{self._first(scope, units, ~known)}, which nothing wrote")
        self._require_arrived(scope, units)
        if self.shadow is not None:
            assert scope.chunk is not None
            self.shadow.read(scope.chunk, units, *self._who(scope, units))

    def note_write(
        self, scope: Scope, start: Array, size: int, harmless: Array | None = None
    ) -> None:
        """Threads write ``size`` bytes each; ``harmless`` where that changes nothing."""
        units = self.units(start, size)
        self._require_arrived(scope, units)
        if self.shadow is not None:
            assert scope.chunk is not None
            self.shadow.write(scope.chunk, units, *self._who(scope, units), harmless)
        if self.written is not None:
            self.written[units] = True

    def _require_arrived(self, scope: Scope, units: Array) -> None:
        if self.pending is not None and (result := self.pending[units]).any():
            raise Race(f"{self._first(scope, units, result)}, into which a copy is in flight")

    def _first(self, scope: Scope, units: Array, array: Array) -> str:
        at = np.argwhere(array)[0]
        return f"{thread_name(scope, int(at[-1]))} uses {self.place(int(units[tuple(at)]))}"

    def place(self, unit: int) -> str:
        """A unit, for messages."""
        byte = unit * self.unit % (self.per_block or len(self.data))
        return f"{self.unit} bytes at byte {byte} of {self.name}"

    @staticmethod
    def _who(scope: Scope, units: Array) -> tuple[Array, Array]:
        chunk = scope.chunk
        assert chunk is not None
        who, time = scope.of(chunk.who), scope.of(chunk.time)
        return np.broadcast_to(who, units.shape), np.broadcast_to(time, units.shape)


def _elements(start: Value, dtype: np.dtype[Any], count: int) -> Value:
    first = start // dtype.itemsize
    return first if count == 1 else first + np.arange(count)[:, None]


def _spread(scope: Scope, start: Value) -> Array:
    """One start for each thread: [threads], or [elements, threads]."""
    if uniform(start):
        return np.full(scope.size, start, np.int64)
    return np.broadcast_to(start, (*start.shape[:-1], scope.size))


def _same_bits(old: Array, new: Array) -> Array:
    bits = np.dtype(f"u{old.dtype.itemsize}")
    same: Array = old.view(bits) == np.ascontiguousarray(new).view(bits)
    return same


def _per_unit(same: Array, units: Array) -> Array:
    """Combine a property of elements into one of the units that they are made of."""
    if same.shape == units.shape:
        return same
    return np.broadcast_to(same.all(axis=0), units.shape)
