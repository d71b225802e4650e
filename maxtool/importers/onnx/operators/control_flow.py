"""The operator that runs a graph inside of it as long as a flag says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import Dim, Graph, Tensor, TensorType, ops
from maxtool.graph.nested_graph import NestedGraph
from maxtool.graph.ops.control import while_growing
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.operators.inner_graphs import run_declared
from maxtool.importers.onnx.operators.loop_state import (
    LoopState,
    growing_state,
    in_graph,
    tensors_of,
    with_stand_ins,
)
from maxtool.importers.onnx.operators.turns import MOST_UNROLLED, stacked, take_turns
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import Sizes, Value, is_known, known


@operator("Loop")
def loop(call: OperatorCall) -> list[Value]:
    """A graph run again and again: one turn after the other where their number is known."""
    going: Value = call.operands[1] if call.has(1) else known(np.array(True))
    limit = _turns(call)
    if limit is None or not is_known(going):
        return _open_loop(call, going)
    try:
        return _unrolled(call, limit, going)
    except OpenLoop:
        return _open_loop(call, going)


class OpenLoop(Exception):
    """A loop whose number of turns is known only when the graph runs."""


def _unrolled(call: OperatorCall, limit: int, going: Value) -> list[Value]:
    """A loop, turn by turn."""
    body, carried = call.attribute("body"), list(call.operands[2:])
    scanned: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    for turn in range(limit):
        if not is_known(going):
            raise OpenLoop
        if not _is_true(going):
            break
        require(turn < MOST_UNROLLED, f"it has more than {MOST_UNROLLED} turns")
        number = known(np.array(turn, np.int64))
        going, *results = call.run_graph(body, [number, going, *carried])
        carried, given = results[: len(carried)], results[len(carried) :]
        for column, value in zip(scanned, given, strict=True):
            column.append(value)
    return [*carried, *(stacked(column, 0) for column in scanned)]


def _turns(call: OperatorCall) -> int | None:
    """The most turns of a loop, if they are known and few enough."""
    if not call.has(0):
        return MOST_UNROLLED + 1
    if not is_known(call.operands[0]):
        return None
    (turns,) = call.ints(0)
    return turns if turns <= MOST_UNROLLED else None


def _open_loop(call: OperatorCall, going: Value) -> list[Value]:
    """A loop whose turns are counted when the graph runs."""
    body, kept = call.attribute("body"), max(len(call.operands) - 2, 0)
    given = [in_graph(call.x(at)) for at in range(2, len(call.operands))]
    if _has_a_turn(call, going):
        given = with_stand_ins(call, given)
    state = growing_state(call, given)
    step = partial(_turn, call, kept)
    if len(body.output) == 1 + kept:
        return [*_counting(call, going, state, step)[1]]
    count = _known_count(call, going, state.kinds)
    if count is None:
        count = _counting(call, going, state, step)[0]
    length = _length(call, count)
    yes = known(np.array(True))

    def turn(number: Tensor, values: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        return step(number, yes, values)[1:]

    ended, stacks = take_turns(length, state, turn)
    return [*ended, *stacks]


def _has_a_turn(call: OperatorCall, going: Value) -> bool:
    """Return whether it is certain that a loop runs at all."""
    starts = is_known(going) and _is_true(going)
    return starts and (not call.has(0) or (is_known(call.operands[0]) and call.ints(0)[0] > 0))


def _turn(
    call: OperatorCall, kept: int, number: Tensor, going: Tensor, values: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Run a turn: whether the loop goes on, what it carries on, and what the turn gives."""
    flag, *results = tensors_of(
        run_declared(call, call.attribute("body"), [number, going, *values])
    )
    return ops.reshape(flag, []), results[:kept], results[kept:]


def _known_count(call: OperatorCall, going: Value, kinds: Sequence[TensorType]) -> Value:
    """The turns of a loop that always goes on; None if a turn may end it."""
    graph, goes_on = Graph.current(), []
    if graph is None or not (call.has(0) and is_known(going) and _is_true(going)):
        return None

    def forward(number: Tensor, *values: Tensor) -> list[Tensor]:
        results = run_declared(call, call.attribute("body"), [number, going, *values])
        goes_on.append(is_known(results[0]) and _is_true(results[0]))
        return tensors_of(results)

    NestedGraph("trial", graph, forward, [TensorType(DType.int64, []), *kinds])
    return call.operands[0] if all(goes_on) else None


def _counting(
    call: OperatorCall, going: Value, state: LoopState, step: Callable[..., Any]
) -> tuple[Tensor, list[Tensor]]:
    """The number of turns that a loop takes, and what it carries in the end."""
    limit = ops.reshape(call.x(0), []) if call.has(0) else None
    counters = [in_graph(known(np.zeros((), np.int64))), in_graph(_flag(going))]

    def goes_on(turn: Tensor, flag: Tensor, *_: Tensor) -> Tensor:
        return flag if limit is None else ops.logical_and(flag, ops.less(turn, limit))

    def run(turn: Tensor, flag: Tensor, *values: Tensor) -> list[Tensor]:
        flag, after, _ = step(turn, flag, values)
        return [turn + 1, flag, *state.claimed(after)]

    growing = state.growing(counters)
    count, _, *ended = while_growing([*counters, *state.first], goes_on, run, growing)
    return count, ended


def _length(call: OperatorCall, count: Value) -> Dim:
    """The turns of a loop as a size."""
    if isinstance(count, Sizes) or is_known(count):
        return Dim(call.size(0))
    require(isinstance(count, Tensor), "the number of turns is not a tensor")
    number = ops.reshape(count, [])  # type: ignore[arg-type]  # it is one
    return ops.counted(number, call.dim("turns")).shape[0]


def _flag(going: Value) -> Tensor:
    require(isinstance(going, Tensor), "whether it goes on is not a tensor")
    return ops.reshape(going, [])  # type: ignore[arg-type]  # it is one


def _is_true(going: Value) -> bool:
    require(is_known(going), "whether a loop goes on is known only when the graph runs")
    return isinstance(going, Tensor) and bool(going.to_numpy().reshape(-1)[0])
