"""Operators on sizes of which some have only names, in chains from ``Shape`` to ``Reshape``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import add, mul, sub
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.graph import Tensor
from maxtool.graph.polynomial import Polynomial
from maxtool.importers.onnx.operator_call import OperatorCall, axis_in, dtype_of
from maxtool.importers.onnx.refusals import UnknownValues
from maxtool.importers.onnx.values import (
    Size,
    Sizes,
    Value,
    is_never_negative,
    known,
    polynomial,
    size_of,
    sizes_of,
)

Objects: TypeAlias = NDArray[np.object_]
# The result as sizes; None where it is none, and is computed when the graph runs.
Fold: TypeAlias = Callable[[OperatorCall], Value]


WHOLE = (DType.int32, DType.int64, DType.float32, DType.float64)
"""Types whose whole numbers are sizes."""


class Undecided(Exception):
    """The result depends on what a call brings."""


def _objects(value: Value) -> Objects:
    """Elements as Python's numbers and dimensions."""
    if isinstance(value, Sizes):
        return value.elements
    if isinstance(value, Tensor) and value.dtype in WHOLE:
        elements = value.to_numpy()
        whole = elements.astype(np.int64)
        if np.array_equal(whole, elements):
            return whole.astype(object)
    raise Undecided


def _first(call: OperatorCall) -> Objects:
    return _objects(call.operands[0])


def _elementwise(function: Callable[[Size, Size], Any]) -> Fold:
    apply = np.frompyfunc(function, 2, 1)

    def fold(call: OperatorCall) -> Value:
        result = _objects(call.operands[0])
        for other in call.operands[1:]:
            result = np.asarray(apply(result, _objects(other)), object)
        return sizes_of(result)

    return fold


def _exactly(combine: Callable[[Polynomial, Polynomial], Polynomial]) -> Fold:
    return _elementwise(lambda left, right: size_of(combine(polynomial(left), polynomial(right))))


def _divided(left: Size, right: Size) -> Size:
    """A quotient of sizes, rounded towards 0: of those that are never negative, down."""
    if isinstance(left, int) and isinstance(right, int):
        if right == 0:
            raise Undecided
        return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    exact = polynomial(left).divided(polynomial(right))
    if exact is not None:
        return size_of(exact)
    whole = polynomial(left)
    if isinstance(right, int) and right > 0 and is_never_negative(whole):
        return size_of(whole // right)
    raise Undecided


def _quotient(call: OperatorCall) -> Value:
    """A quotient; of floats only one that leaves no rest."""
    if all(one.dtype.is_integral() for one in call.operands if isinstance(one, Tensor | Sizes)):
        return _elementwise(_divided)(call)
    return _elementwise(_divided_exactly)(call)


def _divided_exactly(left: Size, right: Size) -> Size:
    if right == 0 or (exact := polynomial(left).divided(polynomial(right))) is None:
        raise Undecided
    return size_of(exact)


def _first_as_sizes(call: OperatorCall) -> Value:
    return call.operands[0]


def _modulo(call: OperatorCall) -> Value:
    return _elementwise(_truncated if call.flag("fmod") else _remainder)(call)


def _remainder(left: Size, right: Size) -> Size:
    """Remainder of a quotient that is rounded down, with the sign of the divisor."""
    if isinstance(left, int) and isinstance(right, int) and right != 0:
        return left % right
    if isinstance(right, int) and right > 0:
        whole = polynomial(left)
        return size_of(whole - (whole // right) * Polynomial.of(right))
    return _truncated(left, right)


def _truncated(left: Size, right: Size) -> Size:
    """Remainder of a quotient that is rounded towards 0."""
    quotient = _divided(left, right)
    return size_of(polynomial(left) - polynomial(quotient) * polynomial(right))


def _extreme(choose: Callable[..., int]) -> Callable[[Size, Size], Size]:
    def chosen(left: Size, right: Size) -> Size:
        if isinstance(left, int) and isinstance(right, int):
            return choose(left, right)
        if left == right:
            return left
        raise Undecided

    return chosen


def _equal(call: OperatorCall) -> Value:
    left, right = np.broadcast_arrays(*map(_objects, call.operands))
    pairs = zip(left.flat, right.flat, strict=True)
    answers = [_same(one, other) for one, other in pairs]
    return known(np.array(answers, bool).reshape(left.shape))


def _same(left: Size, right: Size) -> bool:
    """Return whether two sizes are equal, if that is certain."""
    if left == right:
        return True
    if all(isinstance(one, int) or one.is_static for one in (left, right)):
        return False
    number, other = (left, right) if isinstance(left, int) else (right, left)
    if isinstance(number, int) and number < 0 and is_never_negative(polynomial(other)):
        return False
    raise Undecided


def _where(call: OperatorCall) -> Value:
    condition = call.known(0)
    return sizes_of(np.where(condition, *map(_objects, call.operands[1:])))


def _gather(call: OperatorCall) -> Value:
    data = _first(call)
    places = call.known(1)
    return sizes_of(np.asarray(data.take(places, call.axis(data.ndim, 0)), object))


def _slice(call: OperatorCall) -> Value:
    data = _first(call)
    starts, ends = call.ints(1), call.ints(2)
    axes = call.ints(3) if call.has(3) else list(range(len(starts)))
    steps = call.ints(4) if call.has(4) else [1] * len(starts)
    index = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        stop = None if step < 0 and end < -(1 << 31) else end
        index[axis_in(axis, data.ndim)] = slice(start, stop, step)
    return sizes_of(data[tuple(index)])


def _concat(call: OperatorCall) -> Value:
    arrays = [*map(_objects, call.operands)]
    return sizes_of(np.concatenate(arrays, call.axis(arrays[0].ndim)))


def _unsqueeze(call: OperatorCall) -> Value:
    axes = call.ints(1) if call.has(1) else call.numbers("axes")
    data = _first(call)
    rank = data.ndim + len(axes)
    return sizes_of(np.expand_dims(data, tuple(axis_in(axis, rank) for axis in axes)))


def _squeeze(call: OperatorCall) -> Value:
    data = _first(call)
    given = call.ints(1) if call.has(1) else call.numbers("axes", [])
    axes = tuple(axis_in(axis, data.ndim) for axis in given) if given else None
    return sizes_of(np.asarray(data.squeeze(axes), object))


def _reshape(call: OperatorCall) -> Value:
    return sizes_of(_first(call).reshape(call.ints(1)))


def _cast(call: OperatorCall) -> Value:
    dtype = dtype_of(call.number("to"))
    if dtype not in WHOLE:
        raise Undecided
    return sizes_of(_first(call), dtype)


def _product(call: OperatorCall) -> Value:
    if _first(call).ndim > 1 or (call.has(1) and call.ints(1) not in ([0], [-1])):
        raise Undecided
    total = Polynomial.of(1)
    for one in _first(call).reshape(-1).tolist():
        total = total * polynomial(one)
    kept = call.flag("keepdims", 1)
    return sizes_of(np.array([size_of(total)], object) if kept else _scalar(size_of(total)))


def _scalar(size: Size) -> Objects:
    array = np.empty((), object)
    array[()] = size
    return array


def _decided(fold: Fold) -> Fold:
    """Give up quietly where the result is not certain."""

    def decided(call: OperatorCall) -> Value:
        try:
            return _typed(call, fold(call))
        except (Undecided, UnknownValues):
            return None

    return decided


def _typed(call: OperatorCall, value: Value) -> Value:
    """A result in the type of the operand that is sizes, unless it has a type of its own."""
    dtype = next(one.dtype for one in call.operands if isinstance(one, Sizes))
    if call.op_type in ("Cast", "Equal") or dtype is DType.int64:
        return value
    if isinstance(value, Sizes):
        return Sizes(value.elements, dtype)
    return known(value.to_numpy().astype(dtype.to_numpy())) if isinstance(value, Tensor) else value


SIZE_FOLDS: Mapping[str, Fold] = {
    name: _decided(fold)
    for name, fold in {
        "Add": _exactly(add),
        "Cast": _cast,
        "Concat": _concat,
        "Ceil": _first_as_sizes,
        "Div": _quotient,
        "Equal": _equal,
        "Floor": _first_as_sizes,
        "Gather": _gather,
        "Identity": lambda call: call.operands[0],
        "Max": _elementwise(_extreme(max)),
        "Min": _elementwise(_extreme(min)),
        "Mod": _modulo,
        "Mul": _exactly(mul),
        "ReduceProd": _product,
        "Reshape": _reshape,
        "Slice": _slice,
        "Squeeze": _squeeze,
        "Sub": _exactly(sub),
        "Unsqueeze": _unsqueeze,
        "Where": _where,
    }.items()
}
"""Operators whose result on sizes is sizes, by name."""
