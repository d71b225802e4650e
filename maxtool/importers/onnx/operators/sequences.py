"""Operators on sequences of tensors, whose length is known, and on optionals."""

from __future__ import annotations

import numpy as np

from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall, axis_in
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.refusals import RefusedNode, require
from maxtool.importers.onnx.values import TensorSequence, Value, known


@operator("SequenceEmpty", "SequenceConstruct")
def sequence(call: OperatorCall) -> TensorSequence:
    """The operands as a sequence."""
    return TensorSequence(tuple(call.operands))


@operator("SequenceAt")
def at(call: OperatorCall) -> Value:
    """One tensor of a sequence."""
    items = call.sequence().items
    (place,) = call.ints(1)
    return items[axis_in(place, len(items))]


@operator("SequenceInsert")
def insert(call: OperatorCall) -> TensorSequence:
    """A sequence with one tensor more."""
    items = [*call.sequence().items]
    place = call.ints(2)[0] if call.has(2) else len(items)
    require(-len(items) <= place <= len(items), f"there is no place {place} in {len(items)}")
    items.insert(place, call.value(1))
    return TensorSequence(tuple(items))


@operator("SequenceErase")
def erase(call: OperatorCall) -> TensorSequence:
    """A sequence with one tensor less."""
    items = [*call.sequence().items]
    place = call.ints(1)[0] if call.has(1) else -1
    del items[axis_in(place, len(items))]
    return TensorSequence(tuple(items))


@operator("SequenceLength")
def length(call: OperatorCall) -> Tensor:
    """The number of tensors."""
    return known(np.array(len(call.sequence().items), np.int64))


@operator("ConcatFromSequence")
def concat(call: OperatorCall) -> Tensor:
    """The tensors of a sequence joined along an axis, or along a new one."""
    tensors = [one for one in call.sequence().items if isinstance(one, Tensor)]
    require(bool(tensors), "the sequence is empty")
    axis = call.number("axis")
    return ops.stack(tensors, axis) if call.flag("new_axis") else ops.concat(tensors, axis)


@operator("SplitToSequence")
def split(call: OperatorCall) -> TensorSequence:
    """A tensor cut along an axis; without sizes into slices, whose dimension may be left out."""
    x = call.x()
    axis = call.axis(x.rank, 0)
    whole = x.shape[axis]
    require(whole.is_static, "the length of the sequence is a named size")
    if not call.has(1):
        pieces = ops.split(x, 1, axis)
        keeps = call.flag("keepdims", 1)
        return TensorSequence(tuple(p if keeps else ops.squeeze(p, axis) for p in pieces))
    sizes = call.ints(1)
    each = sizes if call.known(1).ndim else sizes[0]
    return TensorSequence(tuple(ops.split(x, each, axis)))


@operator("Optional")
def optional(call: OperatorCall) -> Value:
    """An optional with the operand in it."""
    return call.value(0)


@operator("OptionalHasElement")
def has_element(call: OperatorCall) -> Tensor:
    """Return whether there is an operand."""
    return known(np.array(call.has(0)))


@operator("OptionalGetElement")
def get_element(call: OperatorCall) -> Value:
    """The element of an optional."""
    if not call.has(0):
        raise RefusedNode("the optional is empty")
    return call.value(0)
