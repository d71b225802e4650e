"""Operators that give constants, sizes, sequences of numbers, and what they are given."""

from __future__ import annotations

import math
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.graph import Dim, Graph, Shape, Tensor, ops
from maxtool.importers.onnx.attributes import array_of
from maxtool.importers.onnx.initializers import ConstantWeight
from maxtool.importers.onnx.limits import KNOWN_ELEMENTS
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.refusals import RefusedNode, require
from maxtool.importers.onnx.values import (
    Size,
    Sizes,
    Value,
    is_known,
    known,
    polynomial,
    size_of,
    sizes_of,
)

MOST_FOLDED = 1 << 24
"""Numbers of a range of floats."""
LISTS = {"value_float": np.float32, "value_floats": np.float32}
LISTS_OF_INTS = {"value_int": np.int64, "value_ints": np.int64}


@operator("Constant")
def constant(call: OperatorCall) -> Tensor:
    """A tensor among the attributes."""
    if "value" in call.attributes:
        return held(call, array_of(call.attribute("value")))
    for name, dtype in (LISTS | LISTS_OF_INTS).items():
        if name in call.attributes:
            return known(np.array(call.attribute(name), dtype))
    raise RefusedNode(f"a constant of {', '.join(call.attributes) or 'nothing'} is not supported")


def held(call: OperatorCall, array: NDArray[Any]) -> Tensor:
    """A known tensor, or of many elements a weight that has them."""
    if array.size <= KNOWN_ELEMENTS:
        return known(array)
    return ConstantWeight(call.new_name("constant"), array)


def full(value: Tensor, sizes: list[Size]) -> Tensor:
    """A tensor of one element's value; one of many elements is made when the graph runs."""
    shape = Shape([Dim(size) for size in sizes])
    graph = Graph.current()
    is_small = shape.is_static and prod(shape.static()) <= KNOWN_ELEMENTS
    scalar = ops.reshape(value, [])
    if graph is None or (is_small and is_known(value)):
        return ops.broadcast_to(scalar, shape)
    return ops.broadcast_to(graph.value(scalar), shape)


@operator("ConstantOfShape")
def constant_of_shape(call: OperatorCall) -> Tensor:
    """One element in a shape."""
    has_value = "value" in call.attributes
    array = array_of(call.attribute("value")) if has_value else np.zeros(1, np.float32)
    return full(known(array), call.sizes(0))


@operator("Shape")
def shape(call: OperatorCall) -> Value:
    """The sizes of a tensor, or some of them."""
    dims = [*call.x().shape]
    first, end = call.number("start", 0), call.number("end", len(dims))
    return sizes_of([int(dim) if dim.is_static else dim for dim in dims[first:end]])


@operator("Size")
def size(call: OperatorCall) -> Value:
    """The number of elements of a tensor."""
    volume = call.x().shape.volume()
    if volume.is_static:
        return known(np.array(int(volume), np.int64))
    array = np.empty((), object)
    array[()] = volume
    return sizes_of(array)


@operator("Identity")
def identity(call: OperatorCall) -> Value:
    """The operand."""
    return call.operands[0]


@operator("Dropout")
def dropout(call: OperatorCall) -> list[Tensor]:
    """The operand, as nothing is dropped outside of training; and a mask of what is kept."""
    is_training = call.has(2) and bool(call.known(2))
    ratio = float(call.known_or(1, 0.5))
    require(not is_training or ratio == 0, "dropout in training draws numbers at random")
    x = call.x()
    return [x, full(known(np.array(True)), [*x.shape])] if call.wants(1) else [x]


@operator("Range")
def range_(call: OperatorCall) -> Tensor:
    """Numbers from the first on, up to and without the second, a step apart."""
    dtype = call.x(0).dtype
    if dtype.is_integral() and not all(map(_is_size, call.operands)):
        return _open_range(call)
    call.decide(0, 1, 2)
    if dtype.is_integral() or any(isinstance(one, Sizes) for one in call.operands):
        start, stop, step = (_whole(call, index) for index in range(3))
        if isinstance(start, int) and isinstance(step, int):
            return ops.range(start, stop, step, dtype=dtype)
        require(isinstance(step, int) and step == 1, "a range from a named size has the step 1")
        many = size_of(polynomial(stop) - polynomial(start))
        return ops.cast(ops.range(0, many) + ops.shape_to_tensor([Dim(start)]), dtype)
    first, end, by = (float(call.known(index).reshape(())) for index in range(3))
    require(by != 0, "the step is 0")
    count = max(math.ceil((end - first) / by), 0)
    require(count <= MOST_FOLDED, f"a range of {count} numbers; at most {MOST_FOLDED}")
    numbers = first + np.arange(count, dtype=np.float64) * by
    return known(numbers.astype(dtype.to_numpy()))


def _is_size(value: Value) -> bool:
    return isinstance(value, Sizes) or is_known(value)


def _open_range(call: OperatorCall) -> Tensor:
    """Whole numbers up to a bound that the data say."""
    start, stop, step = (ops.reshape(call.x(index), []) for index in range(3))
    require(not is_known(step) or bool(step.to_numpy() != 0), "the step is 0")
    wide = [ops.cast(one, DType.int64) for one in (start, stop, step)]
    count = -ops.floordiv(wide[0] - wide[1], wide[2])
    numbers = ops.counted(count, call.dim("range"))
    return ops.cast(numbers * wide[2] + wide[0], start.dtype)


def _whole(call: OperatorCall, index: int) -> Size:
    """A bound that is a size or a whole number."""
    size = call.size(index)
    fits = isinstance(call.operands[index], Sizes) or (call.known(index) == size).all()
    require(bool(fits), "a range to a named size is one of whole numbers")
    return size


@operator("EyeLike")
def eye_like(call: OperatorCall) -> Tensor:
    """Ones on a diagonal of a matrix, zeros elsewhere."""
    x = call.x()
    require(x.rank == 2, "its input is a matrix")
    dtype = call.dtype("dtype", x.dtype)
    rows, columns = (ops.range(0, dim) for dim in x.shape)
    on = ops.equal(ops.unsqueeze(rows, 1) + call.number("k", 0), ops.unsqueeze(columns, 0))
    return ops.cast(on, dtype)
