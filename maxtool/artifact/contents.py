"""Contents of an artifact, whoever describes them: named graphs, the values of weights, and facts.

A recipe is one way to describe them, a module of a user another. What is written follows from here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from maxtool.architectures import Limit, Table
from maxtool.compiler.cpu_target import CpuTarget
from maxtool.compiler.lowering_plan import LoweringPlan
from maxtool.compiler.storage import WeightStorage
from maxtool.compiler.targets import Target
from maxtool.dtype import DType
from maxtool.graph import Graph, TensorType
from maxtool.parity.activation_rounding import Rounding, rounded, rounded_to_bfloat16
from maxtool.quantization import QuantizationEncoding
from maxtool.tokenizer import Tokenizer
from maxtool.weights.weight_data import WeightData

# From the full name of a weight to its value, of the shape that the graphs declare.
Read = Callable[[str], WeightData]


@dataclass(frozen=True, eq=False)
class NamedGraph:
    """A function of an artifact: a graph, and names for what goes in and comes out."""

    name: str
    symbol: str  # of its compiled function
    graph: Graph  # its inputs are those of a call, then the state
    inputs: Sequence[str]  # their names, in order
    outputs: Sequence[str]  # likewise
    state: Sequence[str] = ()  # the buffers that calls share, likewise
    # What inputs that need not be given are full of.
    defaults: Mapping[str, int] = field(default_factory=dict)
    # Least sizes of symbolic dimensions where they are not 1.
    least: Mapping[str, int] = field(default_factory=dict)
    # Sizes of symbolic dimensions that most calls have: there is code for these alone.
    usual: Mapping[str, int] = field(default_factory=dict)

    @property
    def input_types(self) -> dict[str, TensorType]:
        """The types of the inputs of a call."""
        return {
            name: value.type for name, value in zip(self.inputs, self.graph.inputs, strict=False)
        }

    @property
    def state_types(self) -> dict[str, TensorType]:
        """The types of the buffers."""
        buffers = self.graph.inputs[len(self.inputs) :]
        return {name: value.type for name, value in zip(self.state, buffers, strict=True)}

    @property
    def output_types(self) -> dict[str, TensorType]:
        """The types of the outputs."""
        values = zip(self.outputs, self.graph.outputs, strict=True)
        return {name: value.type for name, value in values}


def used_target(target: Target, encodings: Mapping[str, QuantizationEncoding]) -> Target:
    """The target without what only quantized weights use, where there are none."""
    return target if encodings or not isinstance(target, CpuTarget) else target.without_tiles()


@dataclass(frozen=True, eq=False)
class Contents:
    """Contents of an artifact."""

    functions: tuple[NamedGraph, ...]
    target: Target  # what the functions are compiled for
    read: Read  # values are converted to the types that the graphs declare
    identity: Mapping[str, object]  # what the manifest says first: name, recipe, architecture, task
    # Of the matrices that are not quantized; None where they have several, or there are none.
    dtype: DType | None
    # The encodings of the weights whose values are given as bytes of blocks.
    encodings: Mapping[str, QuantizationEncoding] = field(default_factory=dict)
    # Sizes and options of the architecture.
    facts: Mapping[str, object] = field(default_factory=dict)
    context: int | None = None  # positions that the state has room for; None where there are none
    # The axis of positions of each buffer of the state that has one, by name.
    positions: Mapping[str, int] = field(default_factory=dict)
    # Lengths, ascending, beyond which sequences are computed otherwise than up to them.
    turns: tuple[int, ...] = ()
    # The largest size of a dimension, or the least and largest value of an input.
    limits: Mapping[str, Limit] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()  # weights of which rows are read by number
    devices: int = 1  # that run it together, each with a part of the weights
    tokenizer: Tokenizer | None = None
    # The files that it is made from, by name: their paths below the source.
    sources: Mapping[str, Path] = field(default_factory=dict)
    # The file of the recipe, if there is one, and those that it extends.
    recipe_files: tuple[Path, ...] = ()
    # The name and commit of the repository that they were brought from, if they were.
    origin: Mapping[str, object] = field(default_factory=dict)
    # The bytes of the sources that were executed, which may have changed since.
    executed: Mapping[Path, bytes] = field(default_factory=dict)

    @property
    def graphs(self) -> Iterator[Graph]:
        """The graphs of all functions."""
        return (function.graph for function in self.functions)

    @property
    def state(self) -> Mapping[str, TensorType]:
        """The buffers of the function that has most; those of the others are among them."""
        return max((function.state_types for function in self.functions), key=len)

    @property
    def state_bytes(self) -> int:
        """The memory of the state, on all devices: of one text, or of one in each slot."""
        sizes = (
            math.prod(dim.size({"batch": 1}) for dim in kind.shape) * kind.dtype.size_in_bytes
            for kind in self.state.values()
        )
        return sum(sizes) * self.devices

    @cached_property
    def lowering(self) -> LoweringPlan:
        """The graphs as they are lowered for the target."""
        return LoweringPlan(self.graphs, self.target, self.encodings)

    @property
    def storage(self) -> dict[str, WeightStorage]:
        """Storage of each weight, in the order of the file."""
        return self.lowering.storage

    @property
    def rounding(self) -> dict[str, Rounding]:
        """Return how kernels round activations, by the name of the weight that they multiply."""
        each = {name: _rounding(storage) for name, storage in self.storage.items()}
        return {name: rounding for name, rounding in each.items() if rounding is not None}


def _rounding(storage: WeightStorage) -> Rounding | None:
    """Return how kernels of a weight round activations; None if they do not."""
    if storage.encoding is not None:
        return partial(rounded, block=storage.encoding.elements_per_block)
    return rounded_to_bfloat16 if storage.terms > 1 else None
