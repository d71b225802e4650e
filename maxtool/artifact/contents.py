"""Contents of an artifact, whoever describes them: named graphs, the values of weights, and facts.

A recipe is one way to describe them, a module of a user another. What is written follows from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from maxtool.architectures import Limit, Table
from maxtool.compiler.lowering_plan import LoweringPlan
from maxtool.compiler.storage import WeightStorage
from maxtool.compiler.targets import Target
from maxtool.dtype import DType
from maxtool.graph import Graph, TensorType
from maxtool.tokenizer import Tokenizer
from maxtool.weights.weight_data import WeightData

# From the full name of a weight to its value, of the shape that the graphs declare.
Read = Callable[[str], WeightData]


@dataclass(frozen=True, eq=False)
class NamedGraph:
    """A function of an artifact: a graph, and names for what goes in and comes out.

    Attributes:
        name: Its name.
        symbol: The name of its compiled function.
        graph: The graph. Its inputs are those of a call, then the state.
        inputs: The names of the inputs, in order.
        outputs: The names of the outputs, in order.
        state: The names of the buffers that calls share, in order.
        defaults: What inputs that need not be given are full of, by name.
        least: The least size of symbolic dimensions where it is more than 1.
    """

    name: str
    symbol: str
    graph: Graph
    inputs: Sequence[str]
    outputs: Sequence[str]
    state: Sequence[str] = ()
    defaults: Mapping[str, int] = field(default_factory=dict)
    least: Mapping[str, int] = field(default_factory=dict)

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


@dataclass(frozen=True, eq=False)
class Contents:
    """Contents of an artifact.

    Attributes:
        functions: Its functions.
        target: What they are compiled for.
        read: The value of a weight; it is converted to the type that the graphs declare.
        identity: What the manifest says first: name, recipe, architecture, task.
        dtype: The type of the matrices; None where they have several, or there are none.
        facts: What it says of the architecture: sizes, options.
        context: Positions that the state has room for; None where there are none.
        turns: Lengths, ascending, beyond which sequences are computed otherwise than up to them.
        limits: The largest size of a dimension, or the least and largest value of an input.
        tables: Weights of which rows are read by number.
        devices: How many devices run it together, each with a part of the weights.
        tokenizer: The tokenizer, if there is one.
        sources: The files that it is made from.
        executed: The bytes of the sources that were executed, which may have changed since.
    """

    functions: tuple[NamedGraph, ...]
    target: Target
    read: Read
    identity: Mapping[str, object]
    dtype: DType | None
    facts: Mapping[str, object] = field(default_factory=dict)
    context: int | None = None
    turns: tuple[int, ...] = ()
    limits: Mapping[str, Limit] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    devices: int = 1
    tokenizer: Tokenizer | None = None
    sources: tuple[Path, ...] = ()
    executed: Mapping[Path, bytes] = field(default_factory=dict)

    @property
    def graphs(self) -> Iterator[Graph]:
        """The graphs of all functions."""
        return (function.graph for function in self.functions)

    @cached_property
    def lowering(self) -> LoweringPlan:
        """The graphs as they are lowered for the target."""
        return LoweringPlan(self.graphs, self.target)

    @property
    def storage(self) -> dict[str, WeightStorage]:
        """Storage of each weight, in the order of the file."""
        return self.lowering.storage
