"""Artifacts for several devices: whether a model can be split, and what each device has of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Protocol, runtime_checkable

from maxtool.architectures import Architecture
from maxtool.errors import MaxtoolError, UsageError
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
    return _refused(module.split(count), count)


@contextmanager
def _refused(parts: AbstractContextManager[None], count: int) -> Iterator[None]:
    """Enter a context of parts; a weight of which no equal parts can be made is an error."""
    with ExitStack() as entered:
        try:
            entered.enter_context(parts)
        except ValueError as error:
            if isinstance(error, MaxtoolError):
                raise
            hint = "quantized weights are split between blocks; --dtype TYPE decodes them"
            raise UsageError(f"--devices {count}: {error!s:.1000}", hint=hint) from None
        yield


def parts(graphs: Iterable[Graph]) -> dict[str, WeightPart]:
    """The weights that are split, by name."""
    return {name: part for graph in graphs for name, part in graph.parts.items()}


def cut(data: WeightData, part: WeightPart | None, rank: int) -> WeightData:
    """Return the part of a weight that a device holds: all of it where it is not split."""
    return data if part is None else part.strategy.cut(data, rank)
