"""Threads that run a statement, and their variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.simt.dtypes import Array, Value

if TYPE_CHECKING:
    from tests.simt.copies import Copies
    from tests.simt.flat_memory import FlatMemory

WARP_SHIFT = 5
WARP = 1 << WARP_SHIFT
# A time is a pair of counters: barriers of the block, and synchronisations of the warp.
WARP_BITS = 20
# In place of a value that was computed from the former value of a variable.
FORGOTTEN = object()


@dataclass(slots=True)
class Chunk:
    """Blocks of one launch that run in lock-step.

    Lane ``i`` is thread ``i % threads`` of block ``first + i // threads``.

    Args:
        first: Linear number of the first block.
        blocks: How many blocks.
        threads: Threads of a block.
        shape: Threads of a block along x, y, z.
        grid: Blocks of the launch along x, y, z.
        copies: The asynchronous copies in flight.
        memory: What the blocks have allocated, by buffer: shared memory lives as long as they do.
    """

    first: int
    blocks: int
    threads: int
    shape: tuple[int, int, int]
    grid: tuple[int, int, int]
    thread: Array = field(init=False)
    block: Array = field(init=False)
    who: Array = field(init=False)
    time: Array = field(init=False)
    everyone: Array = field(init=False)
    copies: Copies = field(init=False)  # set by who makes it
    memory: dict[int, FlatMemory] = field(init=False)

    def __post_init__(self) -> None:
        lanes = np.arange(self.blocks * self.threads)
        self.everyone = lanes
        self.thread, self.block = lanes % self.threads, lanes // self.threads
        self.who = (self.block + self.first) * self.padded + self.thread
        self.time = np.zeros(len(lanes), np.int64)
        self.memory = {}

    @property
    def padded(self) -> int:
        """Threads of a block, rounded up to whole warps; what ``who`` counts blocks in."""
        return -(-self.threads // WARP) * WARP

    def same_block(self, a: Array, b: Array) -> Array:
        """Return whether threads, by their numbers in the launch, are of one block."""
        same: Array = a // self.padded == b // self.padded
        return same

    def axis(self, tag: str) -> Array:
        """The value of ``threadIdx.x`` and the like, for every lane."""
        kind, _, name = tag.partition(".")
        of_block = kind == "blockIdx"
        linear = self.block + self.first if of_block else self.thread
        x, y, _ = self.grid if of_block else self.shape
        along = {"x": linear % x, "y": linear // x % y, "z": linear // (x * y)}
        return along[name].astype(np.int32)

    def name(self, lane: int) -> str:
        """A thread, for messages."""
        tags = ("x", "y", "z")
        block = ", ".join(str(self.axis(f"blockIdx.{tag}")[lane]) for tag in tags)
        thread = ", ".join(str(self.axis(f"threadIdx.{tag}")[lane]) for tag in tags)
        return f"thread ({thread}) of block ({block})"

    def name_who(self, who: int) -> str:
        """A thread by its number in the launch."""
        block, thread = divmod(who, self.padded)
        x, y, _ = self.shape
        gx, gy, _ = self.grid
        inside = (thread % x, thread // x % y, thread // (x * y))
        outside = (block % gx, block // gx % gy, block // (gx * gy))
        return f"thread {inside} of block {outside}"


class Scope:
    """A subset of a chunk's lanes, and the values of variables for them.

    Args:
        chunk: The blocks that run; None on the host.
        lanes: Numbers of the lanes, ascending; None for all.
        size: How many lanes.
        dependents: Of each variable, the cached expressions that contain it.
    """

    __slots__ = ("_inside", "_lanes", "_parent", "_pick", "chunk", "dependents", "size", "values")

    def __init__(
        self,
        chunk: Chunk | None,
        lanes: Array | None,
        size: int,
        dependents: Mapping[int, Sequence[int]],
    ) -> None:
        self.chunk = chunk
        self.size = size
        self.dependents = dependents
        self.values: dict[int, Any] = {}
        self._lanes = lanes
        self._parent: Scope | None = None
        self._pick: Array | None = None
        self._inside: dict[int, Array] = {}

    @property
    def is_all(self) -> bool:
        """Return whether every lane of the chunk is in it."""
        return self._lanes is None

    @property
    def lanes(self) -> Array:
        """The numbers of the lanes."""
        assert self.chunk is not None
        return self.chunk.everyone if self._lanes is None else self._lanes

    def of(self, per_lane: Array) -> Array:
        """Select these lanes from an array over all lanes."""
        return per_lane if self._lanes is None else per_lane[..., self._lanes]

    def bind(self, key: int, value: Any) -> None:
        """Set a variable; values computed from the former one are dropped."""
        self.values[key] = value
        for dependent in self.dependents.get(key, ()):
            self.values[dependent] = FORGOTTEN  # in the scopes around this one, too

    def get(self, key: int) -> Any:
        """The value of a variable or cached expression.

        Raises:
            KeyError: If there is none.
        """
        values = self.values
        if key in values:
            if values[key] is FORGOTTEN:
                raise KeyError(key)
            return values[key]
        if self._parent is None:
            raise KeyError(key)
        value = values[key] = self._picked(self._parent.get(key))
        return value

    def _picked(self, value: Any) -> Any:
        assert self._parent is not None
        if isinstance(value, np.ndarray) and value.shape[-1] == self._parent.size:
            return value[..., self._pick]
        return value

    def narrow(self, kept: Array) -> Scope:
        """The lanes for which ``kept`` is true."""
        pick = np.flatnonzero(kept)
        inner = Scope(self.chunk, self.lanes[pick], len(pick), self.dependents)
        inner._parent, inner._pick = self, pick
        return inner

    def inside(self, outer: Scope) -> Array | None:
        """Return these lanes' positions among an outer scope's; None if they are the same."""
        if self is outer:
            return None
        if id(outer) not in self._inside:
            assert self._parent is not None
            assert self._pick is not None
            above = self._parent.inside(outer)
            self._inside[id(outer)] = self._pick if above is None else above[self._pick]
        return self._inside[id(outer)]

    def full(self, value: Value) -> Array:
        """A scalar value as an array over the lanes."""
        return value if isinstance(value, np.ndarray) else np.full(self.size, value)
