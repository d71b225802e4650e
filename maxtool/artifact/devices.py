"""Artifacts for several devices: whether a model can be split, and what each device has of it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, runtime_checkable

from maxtool.architectures import Architecture
from maxtool.errors import UsageError
from maxtool.graph import Graph
from maxtool.graph.sharding import Part
from maxtool.weights.data import WeightData

MOST = 64


@runtime_checkable
class Splittable(Protocol):
    """An architecture of which each of several devices can run a part."""

    def split(self, count: int) -> AbstractContextManager[None]:
        """While graphs are traced for each of ``count`` devices."""


def split(module: Architecture, count: int) -> AbstractContextManager[None]:
    """While the graphs of each device are traced, which are the same for all.

    Raises:
        UsageError: If it is no number of devices, or nothing splits such a model.
        ConfigurationError: Listing what makes no equal parts.
    """
    if not 1 <= count <= MOST:
        raise UsageError(f"--devices {count} is not from 1 to {MOST}")
    if count == 1:
        return nullcontext()
    if not isinstance(module, Splittable):
        raise UsageError("--devices is for decoders, which alone can be split")
    return module.split(count)


def parts(graphs: Iterable[Graph]) -> dict[str, Part]:
    """The weights that are split, by name."""
    return {name: part for graph in graphs for name, part in graph.parts.items()}


def cut(data: WeightData, part: Part | None, rank: int) -> WeightData:
    """What a device has of a weight: all of it, where it is not split."""
    return data if part is None else part.strategy.cut(data, rank)
