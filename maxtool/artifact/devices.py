"""Artifacts for several devices: whether a model can be split, and what each device has of it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, runtime_checkable

from maxtool.architectures import Architecture
from maxtool.errors import UsageError
from maxtool.graph import Graph
from maxtool.graph.sharding import WeightPart
from maxtool.weights.weight_data import WeightData

MOST = 64


@runtime_checkable
class Splittable(Protocol):
    """An architecture of which each of several devices can run a part."""

    def split(self, count: int) -> AbstractContextManager[None]:
        """Trace graphs for each of ``count`` devices inside this block."""


def split(module: Architecture, count: int) -> AbstractContextManager[None]:
    """Trace the graphs of each device inside this block; they are the same for all."""
    if not 1 <= count <= MOST:
        raise UsageError(f"--devices {count} is not from 1 to {MOST}")
    if count == 1:
        return nullcontext()
    if not isinstance(module, Splittable):
        raise UsageError("--devices is for decoders, which alone can be split")
    return module.split(count)


def parts(graphs: Iterable[Graph]) -> dict[str, WeightPart]:
    """The weights that are split, by name."""
    return {name: part for graph in graphs for name, part in graph.parts.items()}


def cut(data: WeightData, part: WeightPart | None, rank: int) -> WeightData:
    """Return the part of a weight that a device holds: all of it where it is not split."""
    return data if part is None else part.strategy.cut(data, rank)
