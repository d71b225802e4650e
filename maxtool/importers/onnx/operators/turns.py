"""A step taken again and again when the graph runs, and what each gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from maxtool.graph import Dim, Graph, Tensor, TensorType, ops
from maxtool.graph.nested_graph import NestedGraph
from maxtool.graph.ops.control import repeat
from maxtool.importers.onnx.graph_inputs import checked
from maxtool.importers.onnx.refusals import RefusedNode, require
from maxtool.importers.onnx.values import Sizes, Value, as_tensor, known

MOST_UNROLLED = 1024
"""Turns that are imported one by one."""

# From the number of a turn and the state to the next state, and what the turn gives.
Step: TypeAlias = Callable[[Tensor, Sequence[Tensor]], tuple[list[Tensor], list[Tensor]]]


def take_turns(
    length: Dim, state: Sequence[Tensor], step: Step
) -> tuple[list[Tensor], list[Tensor]]:
    """The state after as many turns as a size says, and the results of all, stacked in front."""
    graph = Graph.current()
    if graph is None:
        raise RefusedNode("no graph is traced")
    first = [graph.value(one) for one in state]
    kinds = [one.type for one in first]
    given = _types_given(graph, kinds, step)
    stacks = [_zeros(graph, length, kind) for kind in given]

    def turn_of(turn: Tensor, *values: Tensor) -> list[Tensor]:
        after, results = step(turn, values[: len(kinds)])
        place = ops.reshape(turn, [1, 1])
        written = [
            ops.scatter_nd(stack, ops.unsqueeze(result, 0), place)
            for stack, result in zip(values[len(kinds) :], results, strict=True)
        ]
        return [*alike(after, kinds), *written]

    ended = repeat(length, [*first, *stacks], turn_of)
    return ended[: len(kinds)], ended[len(kinds) :]


def in_graph(value: Tensor) -> Tensor:
    """A tensor as a value of the graph that is traced."""
    graph = Graph.current()
    if graph is None:
        raise RefusedNode("no graph is traced")
    return graph.value(value)


def tensors_of(values: Sequence[Value]) -> list[Tensor]:
    """The outputs of a graph, which are tensors, as values of the graph that is traced."""
    tensors = [as_tensor(one) for one in values if isinstance(one, Tensor | Sizes)]
    require(len(tensors) == len(values), "a graph inside of it gives what is not a tensor")
    return [*map(in_graph, tensors)]


def alike(values: Sequence[Tensor], kinds: Sequence[TensorType]) -> list[Tensor]:
    """Values claimed to have the sizes that the state had before."""
    require(len(values) == len(kinds), f"it carries {len(kinds)} values, and gives {len(values)}")
    return [_alike(*pair) for pair in zip(values, kinds, strict=True)]


def _alike(value: Tensor, kind: TensorType) -> Tensor:
    if value.shape == kind.shape:
        return value
    message = f"a value that it carries on changes from {kind} to {value.type}"
    pairs = [*zip(value.shape, kind.shape, strict=False)]
    never = any(one.is_static and other.is_static and one != other for one, other in pairs)
    require(value.rank == len(kind.shape) and not never, message)
    return ops.rebind(value, kind.shape, message)


def _types_given(graph: Graph, kinds: Sequence[TensorType], step: Step) -> list[TensorType]:
    """The types of what a turn gives, from tracing one for them alone."""
    number = TensorType(known(np.zeros((), np.int64)).dtype, [])

    def forward(turn: Tensor, *values: Tensor) -> list[Tensor]:
        return step(turn, values)[1]

    trial = NestedGraph("trial", graph, forward, [number, *kinds])
    return [TensorType(one.dtype, one.shape, one.device) for one in trial.outputs]


def _zeros(graph: Graph, length: Dim, kind: TensorType) -> Tensor:
    zero = graph.value(known(np.zeros((), kind.dtype.to_numpy())))
    return ops.broadcast_to(zero, checked(TensorType(kind.dtype, [length, *kind.shape])).shape)


def stacked(column: Sequence[Value], axis: int) -> Tensor:
    """One tensor of what each turn gives."""
    require(bool(column), "a loop of no turns gives a tensor of no elements")
    tensors = [as_tensor(one) for one in column if isinstance(one, Tensor | Sizes)]
    require(len(tensors) == len(column), "a loop gives something that is not a tensor")
    return ops.stack(tensors, axis)
