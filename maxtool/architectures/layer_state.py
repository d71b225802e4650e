"""States of the layers of a decoder: what each keeps of a text, as it says itself.

Attention keeps something of each position, or of the last ones: a text can go on from any position
that is there. Other layers keep a state of fixed size, which each token changes: a text goes on at
its end alone, or begins anew at position 0, where a state counts as zeros whatever it holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from maxtool.architectures.cache_layout import Cache, CacheLayout, Location
from maxtool.architectures.rotary_angles import Turn
from maxtool.graph import BufferType, Tensor
from maxtool.nn import Module

# Hidden state, what positions do, location and cache, to the hidden state and the written cache.
CachedModule: TypeAlias = Module[
    [Tensor, Turn, Location, Cache | None], tuple[Tensor, Cache | None]
]


@dataclass(frozen=True, slots=True)
class LayerState:
    """The buffers of one layer, by name."""

    buffers: Mapping[str, BufferType]
    # The axis of positions of each of them that has one.
    positions: Mapping[str, int] = field(default_factory=dict)
    # Positions that those have room for; None where there are none.
    room: int | None = None
    # Buffers of what an encoder gives, which no token changes.
    source: Mapping[str, BufferType] = field(default_factory=dict)

    @property
    def is_fixed(self) -> bool:
        """Return whether any buffer is of fixed size, so that no token can be taken back."""
        return not self.buffers.keys() <= self.positions.keys()

    @property
    def whole(self) -> Mapping[str, BufferType]:
        """All buffers by name, those of the source last."""
        return {**self.buffers, **self.source}


def beside(states: Mapping[str, LayerState]) -> LayerState:
    """The buffers of parts that stand side by side, each with the name of its part before its own.

    That of a part by itself is its own, and no parts keep nothing.
    """
    if not states:
        return LayerState({})
    if len(states) == 1:
        return next(iter(states.values()))
    rooms = [state.room for state in states.values() if state.room is not None]
    return LayerState(
        {f"{part}_{name}": kind for part, s in states.items() for name, kind in s.buffers.items()},
        {
            f"{part}_{name}": axis
            for part, s in states.items()
            for name, axis in s.positions.items()
        },
        min(rooms, default=None),
    )


class Mixer(Protocol):
    """The part of a layer through which tokens know of those before them.

    Attributes:
        form: How what it keeps lies in memory.
    """

    form: CacheLayout

    def state(self) -> LayerState:
        """The buffers of a text; of a part of the heads where it is traced for one device."""

    def __call__(
        self, x: Tensor, turn: Turn, location: Location, cache: Cache | None, /
    ) -> tuple[Tensor, Cache | None]:
        """Mix ``x [batch, seq, hidden]``, which begins at ``location``, with what is kept.

        Returns the written buffers too, in the order of :meth:`state`; None without a cache.
        """
