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

from maxtool.graph.call import Renaming, check_operands
from maxtool.graph.node import Node
from maxtool.graph.sharding import WeightPart
from maxtool.graph.tensor import Tensor
from maxtool.graph.type import BufferType, TensorType, plain_names, unknown_name
from maxtool.graph.weight import Family, Shard, Weight
from maxtool.graph.weights import DeclaredWeights
from maxtool.weights.view import AllocatedWeight

# Operations whose results bring sizes that may get a name there.
NAMING = ("counted", "nonzero", "rebind")

_CURRENT: ContextVar[Graph | None] = ContextVar("maxtool_graph", default=None)


class Graph:
    """A traced computation.

    Used as a context manager, every operation inside it on a traced value is recorded::

        with Graph("double", input_types=[TensorType(DType.float32, ["n"])]) as graph:
            graph.output(graph.inputs[0] * 2.0)

    or it traces ``forward`` right away.

    Args:
        name: The graph's name, which its compiled function has too.
        forward: Called with the inputs, then ``args`` and ``kwargs``; what it returns are the
            outputs.
        input_types: The types of the inputs; a ``BufferType`` may be written in place.
        args: What else ``forward`` takes.
        kwargs: What else ``forward`` takes by name.
        names: The names of parameters that are plain tensors, by identity; a graph traced inside
            another one knows what that one knows.
        weight_prefix: For a subgraph: weights whose names start with it are placeholders, resolved
            at each call by the prefix given there.
    """

    def __init__(
        self,
        name: str,
        forward: Callable[..., Any] | None = None,
        input_types: Iterable[TensorType] = (),
        *args: Any,  # noqa: ANN401 - whatever forward takes
        names: Mapping[int, str] | None = None,
        weight_prefix: str | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        if forward is None and (args or kwargs):
            raise TypeError(f"graph {name!r} has no forward to take {[*args, *kwargs]}")
        outer = Graph.current()
        self.name = name
        self.inputs: tuple[Tensor, ...] = tuple(
            Tensor.traced(input_type, self) for input_type in input_types
        )
        self.outputs: tuple[Tensor, ...] = ()
        self._dims = plain_names(value.type for value in self.inputs) | self._known_names()
        self._require_known("an input", (value.type for value in self.inputs))
        self.nodes: list[Node | CallNode] = []
        self.weight_values: dict[str, Tensor] = {}
        self.placeholders: dict[str, Tensor] = {}
        self.owners: dict[str, Weight] = {}
        self.borrowed: dict[str, Weight] = {}
        self._families: dict[Family, Mapping[str, Weight]] = {}
        self.parts: dict[str, WeightPart] = {}
        self.overwritten: dict[int, str] = {}
        # Names of sizes of the outputs that a call is the first to have.
        self.given: frozenset[str] = frozenset()
        self.constants: list[tuple[Tensor, Tensor]] = []
        self.subgraphs: dict[str, Graph] = {}
        self.declared: dict[str, Weight] = {}
        self.weight_prefix = weight_prefix
        inherited: Mapping[int, str] = outer._names if outer else {}
        self._names: Mapping[int, str] = inherited if names is None else names
        self._tokens: list[Token[Graph | None]] = []
        if forward is not None:
            with self:
                results = forward(*self.inputs, *args, **kwargs)
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
        type_: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _CURRENT.reset(self._tokens.pop())
        if not self._tokens:  # modules may change from now on
            self._families.clear()

    def output(self, *values: Tensor) -> None:
        """Set the values that the graph returns.

        Raises:
            TypeError: If something is not a tensor.
            ValueError: If a value cannot be used here.
        """
        for index, value in enumerate(values):
            if not isinstance(value, Tensor):
                type_name = type(value).__name__
                raise TypeError(
                    f"output {index} of graph {self.name!r} is a {type_name}, not a tensor"
                )
        self.outputs = tuple(self.value(value) for value in values)

    def weights(self) -> DeclaredWeights:
        """Names from which weights of this graph are allocated.

        The graph has no checkpoint: a weight exists once it has been allocated::

            up = graph.weights().layers[0].up.weight.allocate(DType.float32, [5, 10])
        """
        return DeclaredWeights(self.declared)

    def name_of(self, tensor: Tensor) -> str | None:
        """The name of a weight or of another parameter; None for any other tensor."""
        return tensor.name if isinstance(tensor, Weight) else self._names.get(id(tensor))

    def weight(self, name: str) -> Weight | None:
        """The weight that a name of this graph stands for, or, by another name, one declared alike.

        None for a parameter that is not a weight.
        """
        return self.owners.get(name, self.borrowed.get(name))

    def knows(self, tensor: Tensor) -> bool:
        """Return whether an operation on it is traced: it is a traced value or a parameter."""
        return tensor.is_traced or self.name_of(tensor) is not None

    def add_weight(
        self,
        weight: Weight | AllocatedWeight,
        force_initial_weight_on_host: bool = True,  # noqa: ARG002 - the reference API's
    ) -> Tensor:
        """The value that stands for ``weight`` here; the same one each time it is asked for.

        Args:
            weight: The weight, or what the view of a checkpoint allocated.
            force_initial_weight_on_host: Taken for the reference API's sake. Weights are given on
                the host, and are moved to their device when the graph is loaded.

        Raises:
            LookupError: If the graph is not being traced.
            ValueError: If another weight has that name already, or this one was changed since it
                was added first.
        """
        if not self._tokens:
            raise LookupError(f"graph {self.name!r} is not being traced: use it in a with block")
        if isinstance(weight, AllocatedWeight):
            weight = self.declared.setdefault(weight.name, Weight.of(weight))
        return self._weight(weight)

    def add_subgraph(
        self,
        name: str,
        forward: Callable[..., Any] | None = None,
        input_types: Iterable[TensorType] = (),
        *args: Any,  # noqa: ANN401 - whatever forward takes
        weight_prefix: str | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> Graph:
        """A graph of a new name for :func:`.ops.call` to call from here; arguments as for Graph."""
        if name in self.subgraphs:
            raise ValueError(f"graph {self.name!r} has another subgraph named {name!r}")
        with self:  # so that the subgraph knows the names that this graph knows
            subgraph = Graph(
                name, forward, input_types, *args, weight_prefix=weight_prefix, **kwargs
            )
        self.subgraphs[name] = subgraph
        return subgraph

    def value(self, operand: Tensor) -> Tensor:
        """``operand`` as a value of this graph: a weight or a constant is entered first.

        A ``ValueError`` if it belongs to another graph, or is a buffer that was overwritten.
        """
        if id(operand) in self.overwritten:
            by = self.overwritten[id(operand)]
            raise ValueError(f"{operand!r} was overwritten by {by}: use its result")
        if operand.graph is self:
            return operand
        if operand.graph is not None:
            raise ValueError(f"{operand!r} belongs to graph {operand.graph.name!r}")
        if isinstance(operand, Weight):
            return self._weight(operand)
        if id(operand) in self._names:
            return self._named(self._names[id(operand)], operand.type)
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
        writes: int | None = None,
    ) -> tuple[Tensor, ...]:
        """Record an operation and return the values, of these types, that stand for its results.

        ``writes`` is the index of the operand that it overwrites, where that is a buffer. Refused
        are operands that cannot be used here, a buffer that is overwritten and read too, and a
        result with a dimension of a name that stands for no size.
        """
        operands = tuple(self.value(operand) for operand in inputs)
        if op in NAMING:
            self._dims |= plain_names(types)
        self._require_known(op, types)
        outputs = tuple(Tensor.traced(type_, self) for type_ in types)
        if writes is not None:
            self._overwrite(operands[writes], op, operands)
        self.nodes.append(Node(op, operands, attributes, outputs))
        return outputs

    def call(self, subgraph: Graph, *inputs: Tensor, prefix: str = "") -> tuple[Tensor, ...]:
        """Record a call of ``subgraph`` and return the values that stand for its results.

        ``prefix`` is put before the name of each placeholder weight. Refused is what
        :func:`.ops.call` documents, a buffer that is overwritten and read too, and a name that
        another subgraph has.
        """
        check_operands(subgraph.name, inputs, subgraph.inputs)
        if self.subgraphs.get(subgraph.name, subgraph) is not subgraph:
            raise ValueError(f"graph {self.name!r} has another subgraph named {subgraph.name!r}")
        call, traced = Renaming(subgraph.weight_prefix, prefix), subgraph.borrowed | subgraph.owners
        call.check(subgraph.name, subgraph.placeholders, subgraph.weight_values)
        self._dims |= subgraph.given
        self._require_known(subgraph.name, (value.type for value in subgraph.outputs))
        self.subgraphs[subgraph.name] = subgraph
        self.parts |= call.parts(subgraph.parts)
        self.borrowed = call.weights(traced, self._families) | self.borrowed
        weights = [
            *(self._named(prefix + name, use.type) for name, use in subgraph.placeholders.items()),
            *(self._named(name, use.type) for name, use in subgraph.weight_values.items()),
        ]
        operands = tuple(self.value(operand) for operand in inputs)
        # An input that is handed through, or a value returned twice, is one value here as well.
        values = dict(zip(map(id, subgraph.inputs), operands, strict=True))
        outputs = tuple(
            values.setdefault(id(value), Tensor.traced(value.type, self))
            for value in subgraph.outputs
        )
        for operand, parameter in zip(operands, subgraph.inputs, strict=True):
            if id(parameter) in subgraph.overwritten:
                self._overwrite(operand, subgraph.name, operands)
        self.nodes.append(CallNode(subgraph, operands, tuple(weights), outputs))
        return outputs

    def parameters(self) -> tuple[Tensor, ...]:
        """The values that a caller passes for the weights: placeholders, then the others."""
        return (*self.placeholders.values(), *self.weight_values.values())

    def _known_names(self) -> set[str]:
        """The names of sizes that are known without any input."""
        return set()

    def _weight(self, weight: Weight) -> Tensor:
        """Implement :meth:`add_weight`."""
        if self.owners.setdefault(weight.name, weight) is not weight:
            raise ValueError(
                f"graph {self.name!r} has another weight named {weight.name!r}: name the weights"
                " by their full paths first, as Module.state_dict() does"
            )
        if isinstance(weight, Shard):
            self.parts[weight.name] = weight.part
        value = self._named(weight.name, weight.type)
        if value.type != weight.type:
            raise ValueError(
                f"weight {weight.name!r} is {weight.type} now, and was {value.type} when graph"
                f" {self.name!r} used it first: change weights before a graph is built"
            )
        return value

    def _named(self, name: str, tensor_type: TensorType) -> Tensor:
        """The value that stands for the weight of that full name."""
        prefix = self.weight_prefix
        if prefix is not None and name.startswith(prefix):
            table, name = self.placeholders, name.removeprefix(prefix)
        else:
            table = self.weight_values
        self._dims |= plain_names([tensor_type])
        return table.setdefault(name, Tensor.traced(tensor_type, self))

    def _require_known(self, by: str, types: Iterable[TensorType]) -> None:
        """Refuse a dimension whose size would be known from nowhere."""
        if (unknown := unknown_name(types, self._dims)) is not None:
            raise ValueError(
                f"{by} of graph {self.name!r} has a dimension {unknown!r}, which is none of an"
                " input; give a size such a name with rebind"
            )

    def _overwrite(self, buffer: Tensor, by: str, operands: Sequence[Tensor]) -> None:
        """Remember that a buffer has other contents now; what is not a buffer is copied instead."""
        if not isinstance(buffer.type, BufferType):
            return
        if sum(operand is buffer for operand in operands) > 1:
            raise ValueError(f"{by} overwrites {buffer!r} and reads it too")
        self.overwritten[id(buffer)] = by

    def __repr__(self) -> str:
        kinds = ", ".join(str(value.type) for value in self.inputs)
        return f"Graph({self.name!r}, [{kinds}], {len(self.nodes)} nodes)"


@dataclass(frozen=True, slots=True, eq=False)
class CallNode:
    """A call of a subgraph.

    ``weights`` are values of the calling graph, one for each of ``callee.parameters()``.
    """

    callee: Graph
    inputs: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
