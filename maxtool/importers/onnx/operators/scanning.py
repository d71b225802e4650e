"""The operator that runs a graph inside of it on each slice of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maxtool.graph import Dim, Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall, axis_in
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.operators.loop_state import steady_state, tensors_of
from maxtool.importers.onnx.operators.turns import MOST_UNROLLED, stacked, take_turns
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import Value, known


@operator("Scan", since=9)
def scan(call: OperatorCall) -> list[Value]:
    """A graph run on each slice of tensors, with a state."""
    count = call.number("num_scan_inputs")
    require(0 < count <= len(call.operands), f"it scans {count} of its inputs")
    inputs = [call.x(at) for at in range(len(call.operands) - count, len(call.operands))]
    scanned = [
        Scanned(x, axis_in(axis, x.rank), bool(back))
        for x, axis, back in zip(
            inputs,
            call.numbers("scan_input_axes", [0] * count),
            call.numbers("scan_input_directions", [0] * count),
            strict=True,
        )
    ]
    state, turns = list(call.operands[:-count]), scanned[0].length
    if turns.is_static and int(turns) <= MOST_UNROLLED:
        after, columns = _scanned(call, state, scanned)
        stacks = [stacked(column, 0) for column in columns]
    else:
        ended, stacks = _open_scan(call, state, scanned)
        after = [*ended]
    axes = call.numbers("scan_output_axes", [0] * len(stacks))
    backwards = call.numbers("scan_output_directions", [0] * len(stacks))
    return [*after, *map(_arranged, stacks, axes, backwards)]


@dataclass(frozen=True, slots=True)
class Scanned:
    """A tensor that is scanned, the dimension, and whether the last slice comes first."""

    x: Tensor
    axis: int
    is_backward: bool

    @property
    def length(self) -> Dim:
        """The number of slices."""
        return self.x.shape[self.axis]

    def slice_of(self, turn: Tensor) -> Tensor:
        """The slice of a turn."""
        last = ops.reshape(ops.shape_to_tensor([self.length]), []) - 1
        return ops.gather(self.x, last - turn if self.is_backward else turn, self.axis)


def _scanned(
    call: OperatorCall, state: list[Value], scanned: Sequence[Scanned]
) -> tuple[list[Value], list[list[Value]]]:
    """The last state, and what each turn gives, one turn after the other."""
    body, kept = call.attribute("body"), len(state)
    columns: list[list[Value]] = [[] for _ in range(len(body.output) - kept)]
    for turn in range(int(scanned[0].length)):
        slices = [one.slice_of(known(np.array(turn, np.int64))) for one in scanned]
        results = call.run_graph(body, [*state, *slices])
        state = results[:kept]
        for column, value in zip(columns, results[kept:], strict=True):
            column.append(value)
    return state, columns


def _open_scan(
    call: OperatorCall, state: Sequence[Value], scanned: Sequence[Scanned]
) -> tuple[list[Tensor], list[Tensor]]:
    """The last state, and what each turn gives, of as many turns as a call brings."""
    body, kept = call.attribute("body"), len(state)
    carried = tensors_of(state)

    def turn(number: Tensor, values: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        slices = [one.slice_of(number) for one in scanned]
        results = tensors_of(call.run_graph(body, [*values, *slices]))
        return results[:kept], results[kept:]

    return take_turns(scanned[0].length, steady_state(carried), turn)


def _arranged(stack: Tensor, axis: int, is_backward: int) -> Tensor:
    """Slices, which are stacked in front, in an order and along a dimension of their own."""
    at = axis_in(axis, stack.rank)
    if is_backward:
        stack = ops.slice_tensor(stack, (slice(None, None, -1),))
    order = [*range(1, stack.rank)]
    order.insert(at, 0)
    return ops.permute(stack, order) if at else stack
