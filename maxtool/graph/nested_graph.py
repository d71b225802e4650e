"""Graphs inside of another one that use its values: the branches and the bodies of control flow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from maxtool.graph.dim import Dim, Shape
from maxtool.graph.graph import CallNode, Graph
from maxtool.graph.tensor import Tensor
from maxtool.graph.type import BufferType, TensorType


class InnerGraph(Graph):
    """A graph that knows the sizes that ``outer`` knows, and its weights by the same names.

    ``known_before`` has the names of these sizes; others are given by nodes of its own.
    """

    def __init__(self, name: str, outer: Graph, input_types: Iterable[TensorType]) -> None:
        self.outer = outer
        super().__init__(name, None, input_types, weight_prefix=outer.weight_prefix)
        self.known_before = frozenset(self._dims)

    def _known_names(self) -> set[str]:
        return self.outer._known_names() | self.outer._dims

    def _names_given(self) -> frozenset[str]:
        names = {name for value in self.outputs for dim in value.shape for name in dim.names()}
        return frozenset(names - self.known_before)


class NestedGraph(InnerGraph):
    """A graph traced while ``outer`` is, which may use what is known there, but for buffers.

    A value of ``outer`` becomes one more input the first time it is used; ``outside`` has those
    values, in the order of these inputs. Where ``forward`` returns None, there are no outputs.
    """

    def __init__(
        self,
        name: str,
        outer: Graph,
        forward: Callable[..., Any],
        input_types: Iterable[TensorType] = (),
    ) -> None:
        self.outside: list[Tensor] = []
        super().__init__(name, outer, input_types)
        with self:
            self.output(*as_results(forward(*self.inputs)))
        self.given = self._names_given()

    def value(self, operand: Tensor) -> Tensor:
        """``operand`` as a value of this graph; one of the graphs around it as an input."""
        if operand.graph is None or operand.graph is self:
            return super().value(operand)
        meant = self.outer.value(operand)
        for level, other in enumerate(reversed(self.outside), start=1):
            if other is meant:
                return self.inputs[-level]
        if isinstance(meant.type, BufferType):
            raise ValueError(
                f"{self.name} cannot use {meant!r}: a buffer stays outside of branches"
            )
        self.outside.append(meant)
        self.inputs = (*self.inputs, Tensor.traced(meant.type, self))
        return self.inputs[-1]


class FlowGraph(InnerGraph):
    """Calls of other graphs of which not all happen, or one happens several times.

    Its nodes are the calls: of a condition's two branches, or of the predicate and the body of a
    loop. What they give is not a value here; the outputs, of the types ``results``, are what comes
    of the whole. Its inputs are the predicate or the state, and then what is used from ``outer``.
    ``turns`` is the size that says how often a loop's body is called, if one does. ``growing`` has
    the names of sizes of a loop's state that are others each time.
    """

    turns: Dim | None = None
    growing: frozenset[str] = frozenset()

    def __init__(
        self,
        name: str,
        outer: Graph,
        flow: Literal["cond", "while"],
        input_types: Sequence[TensorType],
        results: Sequence[TensorType],
    ) -> None:
        self.flow = flow
        super().__init__(name, outer, input_types)
        self.outputs = tuple(Tensor.traced(result, self) for result in results)
        self.given = self._names_given()

    def add_call(self, graph: NestedGraph, *inputs: Tensor) -> None:
        """Add a call, of operands among the inputs."""
        with self:
            self.call(graph, *inputs, prefix=self.weight_prefix or "")


def as_results(value: Any) -> tuple[Any, ...]:  # noqa: ANN401 - what a function of a user returned
    """The results of a function as a tuple: one thing, several, or None for none."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def names_in(graph: InnerGraph) -> list[str]:
    """The names of outer sizes that a graph reads, or a graph that it calls, in order."""
    names = {name for dim in _dims_of(graph) for name in dim.names()}
    return sorted(names & graph.known_before)


def _dims_of(graph: Graph) -> Iterator[Dim]:
    for value in (*graph.inputs, *graph.outputs, *graph.parameters()):
        yield from value.shape
    for node in graph.nodes:
        if isinstance(node, CallNode):
            yield from _dims_of(node.callee)
            continue
        for attribute in node.attributes.values():
            yield from _dims_in(attribute)
        for value in node.outputs:
            yield from value.shape


def _dims_in(attribute: Any) -> Iterator[Dim]:  # noqa: ANN401 - of any operation
    """The dimensions of an attribute: a size, a shape, or ranges of dimensions."""
    if isinstance(attribute, Dim):
        yield attribute
    elif isinstance(attribute, Shape | tuple):
        for nested in attribute:
            yield from _dims_in(nested)
    elif hasattr(attribute, "start"):
        yield from (attribute.start, attribute.size)
