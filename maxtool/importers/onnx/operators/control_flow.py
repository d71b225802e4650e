"""Operators that run graphs inside of them: one of two, or one several times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maxtool.graph import Graph, Tensor, TensorType, ops
from maxtool.graph.nested_graph import NestedGraph
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.refusals import RefusedNode, require
from maxtool.importers.onnx.values import Sizes, Value, as_tensor, is_known, known

MOST_UNROLLED = 1024
"""Turns of a loop that are imported one by one."""


@operator("If")
def if_(call: OperatorCall) -> list[Value]:
    """The outputs of one of two graphs; only that one is imported where it is known which."""
    condition = call.x()
    branches = [call.attribute("then_branch"), call.attribute("else_branch")]
    if is_known(condition):
        return call.run_graph(branches[0 if condition.to_numpy().reshape(-1)[0] else 1], [])
    types = [_types(call, branch) for branch in branches]
    require(types[0] == types[1], f"its branches give {_listed(types[0])} and {_listed(types[1])}")
    runs = [lambda branch=branch: _tensors(call, branch, []) for branch in branches]
    return [*ops.cond(ops.reshape(condition, []), types[0], *runs)]


def _listed(types: Sequence[TensorType]) -> str:
    return ", ".join(map(str, types))


def _tensors(call: OperatorCall, graph: object, operands: Sequence[Value]) -> list[Tensor]:
    """The outputs of a graph as values of the graph that is traced."""
    current = Graph.current()
    results = call.run_graph(graph, operands)
    if current is None or not all(isinstance(one, Tensor | Sizes) for one in results):
        raise RefusedNode("a graph inside of it gives something that is not a tensor")
    return [current.value(as_tensor(one)) for one in results]  # type: ignore[arg-type]


def _types(call: OperatorCall, branch: object) -> list[TensorType]:
    """The types of a branch's outputs, from tracing it once for them alone."""
    outer = Graph.current()
    if outer is None:
        raise RefusedNode("no graph is traced")
    trial = NestedGraph("trial", outer, lambda: _tensors(call, branch, []))
    return [TensorType(value.dtype, value.shape, value.device) for value in trial.outputs]


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
    return [*carried, *(_stacked(column, 0) for column in scanned)]


def _turns(call: OperatorCall) -> int | None:
    """The most turns of a loop, if they are known and few enough."""
    if not call.has(0):
        return MOST_UNROLLED + 1
    if not is_known(call.operands[0]):
        return None
    (turns,) = call.ints(0)
    return turns if turns <= MOST_UNROLLED or _scans(call) else None


def _scans(call: OperatorCall) -> bool:
    """Return whether a loop gives values of all turns, beside those that it carries on."""
    return len(call.attribute("body").output) > 1 + len(call.operands[2:])


def _open_loop(call: OperatorCall, going: Value) -> list[Value]:
    """A loop whose turns are counted when the graph runs."""
    require(not _scans(call), "it gives values of each turn, and how many there are is not known")
    body, graph = call.attribute("body"), Graph.current()
    if graph is None:
        raise RefusedNode("no graph is traced")
    limit = ops.reshape(call.x(0), []) if call.has(0) else None
    carried = [graph.value(call.x(at)) for at in range(2, len(call.operands))]
    first = [known(np.zeros((), np.int64)), _flag(going), *carried]

    def goes_on(turn: Tensor, flag: Tensor, *_: Tensor) -> Tensor:
        return flag if limit is None else ops.logical_and(flag, ops.less(turn, limit))

    def run(turn: Tensor, flag: Tensor, *values: Tensor) -> list[Tensor]:
        flag, *results = _tensors(call, body, [turn, flag, *values])
        return [turn + 1, ops.reshape(flag, []), *results]

    return [*ops.while_loop(first, goes_on, run)[2:]]


def _flag(going: Value) -> Tensor:
    require(isinstance(going, Tensor), "whether it goes on is not a tensor")
    return ops.reshape(going, [])  # type: ignore[arg-type]  # it is one


def _is_true(going: Value) -> bool:
    require(is_known(going), "whether a loop goes on is known only when the graph runs")
    return isinstance(going, Tensor) and bool(going.to_numpy().reshape(-1)[0])


def _stacked(column: Sequence[Value], axis: int) -> Tensor:
    require(bool(column), "a loop of no turns gives a tensor of no elements")
    tensors = [as_tensor(one) for one in column if isinstance(one, Tensor | Sizes)]
    require(len(tensors) == len(column), "a loop gives something that is not a tensor")
    return ops.stack(tensors, axis)


@operator("Scan", since=9)
def scan(call: OperatorCall) -> list[Value]:
    """A graph run on each slice of tensors, with a state; here one slice after the other."""
    body, count = call.attribute("body"), call.number("num_scan_inputs")
    state, inputs = list(call.operands[:-count]), [call.x(i) for i in _last(call, count)]
    axes = [
        axis % x.rank
        for axis, x in zip(call.numbers("scan_input_axes", [0] * count), inputs, strict=True)
    ]
    backwards = call.numbers("scan_input_directions", [0] * count)
    turns = inputs[0].shape[axes[0]]
    require(turns.is_static and int(turns) <= MOST_UNROLLED, "it scans a named or long dimension")
    outputs = len(body.output) - len(state)
    columns: list[list[Value]] = [[] for _ in range(outputs)]
    for turn in range(int(turns)):
        slices = [
            _element(x, axis, int(turns) - 1 - turn if back else turn)
            for x, axis, back in zip(inputs, axes, backwards, strict=True)
        ]
        results = call.run_graph(body, [*state, *slices])
        state = results[: len(state)]
        for column, value in zip(columns, results[len(state) :], strict=True):
            column.append(value)
    output_axes = call.numbers("scan_output_axes", [0] * outputs)
    reversed_ = call.numbers("scan_output_directions", [0] * outputs)
    ordered = [
        column[::-1] if back else column for column, back in zip(columns, reversed_, strict=True)
    ]
    return [*state, *map(_stacked, ordered, output_axes)]


def _last(call: OperatorCall, count: int) -> range:
    return range(len(call.operands) - count, len(call.operands))


def _element(x: Tensor, axis: int, place: int) -> Tensor:
    return ops.slice_tensor(x, tuple(place if at == axis else slice(None) for at in range(x.rank)))
