"""Saving what was compiled in this process; ``maxtool.artifact``, which lies above, writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from os import PathLike
from pathlib import Path

from maxtool.graph import Graph
from maxtool.quantization import QuantizationEncoding
from maxtool.weights.weight_data import WeightData

# The module whose function ``save`` writes artifacts; it is imported when something is saved.
PROVIDER = "maxtool.artifact.saving"


@dataclass(frozen=True, slots=True, eq=False)
class CompiledFunction:
    """A compiled graph with names, and its weights as they were compiled."""

    name: str
    graph: Graph
    inputs: Sequence[str]
    outputs: Sequence[str]
    weight: Callable[[str], WeightData]
    # How the weights are encoded that are stored quantized.
    encodings: Mapping[str, QuantizationEncoding] = field(default_factory=dict)

    def save(self, folder: str | PathLike[str], **options: bool) -> None:
        """Write it as an artifact; options and errors are those of ``CompiledModule.save``."""
        import_module(PROVIDER).save(self, Path(folder), **options)
