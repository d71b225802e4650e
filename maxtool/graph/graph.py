"""``Graph``: what tracing records. A small structure of our own, which knows no compiler.

A graph has inputs, weights and constants, nodes in the order they were traced, and outputs. A
subgraph is a graph too; ``call`` nodes run it, each with a prefix that says whose weights it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from maxtool.graph.tensor import Tensor
from maxtool.graph.type import TensorType
from maxtool.graph.weight import Weight

_CURRENT: ContextVar[Graph | None] = ContextVar("maxtool_graph", default=None)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operation: its name in the ops table, operands, attributes and results."""

    op: str
    inputs: tuple[Tensor, ...]
    attributes: Mapping[str, Any]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CallNode:
    """A call of a subgraph.

    ``weights`` are values of the calling graph, one for each of ``callee.parameters()``.
    """

    callee: Graph
    inputs: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class Graph:
    """A traced computation.

    Used as a context manager, every operation inside it on a traced value is recorded::

        with Graph("double", input_types=[TensorType(DType.float32, ["n"])]) as graph:
            graph.output(graph.inputs[0] * 2.0)

    or it traces ``forward`` right away.

    Args:
        name: The graph's name, which its compiled function has too.
        forward: Called with the inputs; what it returns are the outputs.
        input_types: The types of the inputs; a ``BufferType`` may be written in place.
        weight_prefix: For a subgraph: weights whose names start with it are placeholders, resolved
            at each call by the prefix given there.
    """

    def __init__(
        self,
        name: str,
        forward: Callable[..., Any] | None = None,
        input_types: Iterable[TensorType] = (),
        *,
        weight_prefix: str | None = None,
    ) -> None:
        self.name = name
        self.inputs: tuple[Tensor, ...] = tuple(Tensor.traced(kind, self) for kind in input_types)
        self.outputs: tuple[Tensor, ...] = ()
        self.nodes: list[Node | CallNode] = []
        self.weights: dict[str, Tensor] = {}
        self.placeholders: dict[str, Tensor] = {}
        self.owners: dict[str, Weight] = {}
        self.constants: list[tuple[Tensor, Tensor]] = []
        self.subgraphs: dict[str, Graph] = {}
        self.weight_prefix = weight_prefix
        self._tokens: list[Token[Graph | None]] = []
        if forward is not None:
            with self:
                results = forward(*self.inputs)
                self.output(*(results if isinstance(results, tuple | list) else (results,)))

    @staticmethod
    def current() -> Graph | None:
        """The graph being traced, if any."""
        return _CURRENT.get()

    def __enter__(self) -> Graph:
        self._tokens.append(_CURRENT.set(self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _CURRENT.reset(self._tokens.pop())

    def output(self, *values: Tensor) -> None:
        """Say what the graph returns."""
        self.outputs = tuple(self.value(value) for value in values)

    def add_weight(self, weight: Weight) -> Tensor:
        """The value that stands for ``weight`` here; the same one each time it is asked for.

        Raises:
            ValueError: If another weight has that name already.
        """
        if self.owners.setdefault(weight.name, weight) is not weight:
            raise ValueError(
                f"graph {self.name!r} has another weight named {weight.name!r}: name the weights"
                " by their full paths first, as Module.state_dict() does"
            )
        return self._named(weight.name, weight.type)

    def value(self, operand: Tensor) -> Tensor:
        """``operand`` as a value of this graph: a weight or a constant is entered first.

        Raises:
            ValueError: If it belongs to another graph.
        """
        if operand.graph is self:
            return operand
        if operand.graph is not None:
            raise ValueError(f"{operand!r} belongs to graph {operand.graph.name!r}")
        if isinstance(operand, Weight):
            return self.add_weight(operand)
        for constant, value in self.constants:
            if constant is operand:
                return value
        self.constants.append((operand, Tensor.traced(operand.type, self)))
        return self.constants[-1][1]

    def add_node(
        self,
        op: str,
        inputs: Sequence[Tensor],
        attributes: Mapping[str, Any],
        types: Sequence[TensorType],
    ) -> tuple[Tensor, ...]:
        """Record an operation and return the values that stand for its results."""
        outputs = tuple(Tensor.traced(kind, self) for kind in types)
        operands = tuple(self.value(operand) for operand in inputs)
        self.nodes.append(Node(op, operands, attributes, outputs))
        return outputs

    def call(self, subgraph: Graph, *inputs: Tensor, prefix: str = "") -> tuple[Tensor, ...]:
        """Record a call of ``subgraph`` and return the values that stand for its results.

        Args:
            subgraph: A graph traced apart.
            inputs: One operand for each of its inputs, of the same type.
            prefix: Put before the name of each placeholder weight of ``subgraph``.

        Raises:
            ValueError: If the operands do not fit, the name is taken by another subgraph, or there
                are placeholders and no prefix to tell whose weights they are.
        """
        self._check_call(subgraph, inputs, prefix)
        self.subgraphs[subgraph.name] = subgraph
        weights = [
            *(self._named(prefix + name, use.type) for name, use in subgraph.placeholders.items()),
            *(self._named(name, use.type) for name, use in subgraph.weights.items()),
        ]
        outputs = tuple(Tensor.traced(value.type, self) for value in subgraph.outputs)
        operands = tuple(self.value(operand) for operand in inputs)
        self.nodes.append(CallNode(subgraph, operands, tuple(weights), outputs))
        return outputs

    def parameters(self) -> tuple[Tensor, ...]:
        """The values that a caller passes for the weights: placeholders, then the others."""
        return (*self.placeholders.values(), *self.weights.values())

    def _named(self, name: str, kind: TensorType) -> Tensor:
        """The value that stands for the weight of that full name."""
        prefix = self.weight_prefix
        if prefix is not None and name.startswith(prefix):
            table, name = self.placeholders, name.removeprefix(prefix)
        else:
            table = self.weights
        return table.setdefault(name, Tensor.traced(kind, self))

    def _check_call(self, subgraph: Graph, inputs: Sequence[Tensor], prefix: str) -> None:
        if len(inputs) != len(subgraph.inputs):
            raise ValueError(
                f"subgraph {subgraph.name!r} takes {len(subgraph.inputs)} operands,"
                f" not {len(inputs)}"
            )
        for index, (operand, parameter) in enumerate(zip(inputs, subgraph.inputs, strict=True)):
            if (operand.dtype, operand.shape) != (parameter.dtype, parameter.shape):
                raise ValueError(
                    f"operand {index} of subgraph {subgraph.name!r} is {operand.type},"
                    f" expected {parameter.type}"
                )
        if self.subgraphs.get(subgraph.name, subgraph) is not subgraph:
            raise ValueError(f"graph {self.name!r} has another subgraph named {subgraph.name!r}")
        if subgraph.placeholders and not prefix:
            raise ValueError(f"subgraph {subgraph.name!r} has weights: a call needs their prefix")

    def __repr__(self) -> str:
        kinds = ", ".join(str(value.type) for value in self.inputs)
        return f"Graph({self.name!r}, [{kinds}], {len(self.nodes)} nodes)"
