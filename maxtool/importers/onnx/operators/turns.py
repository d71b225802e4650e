"""A step taken again and again when the graph runs, and what each gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from maxtool.graph import Dim, Graph, Tensor, TensorType, ops
from maxtool.graph.nested_graph import NestedGraph
from maxtool.graph.ops.control import repeat
from maxtool.importers.onnx.graph_inputs import checked
from maxtool.importers.onnx.operators.loop_state import LoopState
from maxtool.importers.onnx.refusals import RefusedNode, require
from maxtool.importers.onnx.values import Sizes, Value, as_tensor, known

MOST_UNROLLED = 1024
"""Turns that are imported one by one."""

# From the number of a turn and the state to the next state, and what the turn gives.
Step: TypeAlias = Callable[[Tensor, Sequence[Tensor]], tuple[list[Tensor], list[Tensor]]]


def take_turns(length: Dim, state: LoopState, step: Step) -> tuple[list[Tensor], list[Tensor]]:
    """The state after as many turns as a size says, and the results of all, stacked in front."""
    graph = Graph.current()
    if graph is None:
        raise RefusedNode("no graph is traced")
    first, count = [graph.value(one) for one in state.first], len(state.kinds)
    given = _types_given(graph, state.kinds, step)
    stacks = [_zeros(graph, length, kind) for kind in given]

    def turn_of(turn: Tensor, *values: Tensor) -> list[Tensor]:
        after, results = step(turn, values[:count])
        place = ops.reshape(turn, [1, 1])
        written = [
            ops.scatter_nd(stack, ops.unsqueeze(result, 0), place)
            for stack, result in zip(values[count:], results, strict=True)
        ]
        return [*state.claimed(after), *written]

    turn = graph.value(known(np.zeros((), np.int64)))
    ended = repeat(length, [*first, *stacks], turn_of, state.growing([turn], stacks))
    return ended[:count], ended[count:]


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
