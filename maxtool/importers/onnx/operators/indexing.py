"""Operators that read and write at places, and that put in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import Dim, DimLike, Graph, Tensor, ops
from maxtool.graph.ops.operation_table import as_number
from maxtool.graph.ops.slicing import cut_along
from maxtool.importers.onnx.operator_call import OperatorCall, axis_in
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import Size, is_known, is_never_negative, known, polynomial


@operator("Gather")
def gather(call: OperatorCall) -> Tensor:
    """Elements at places of one dimension."""
    x = call.x()
    return ops.gather(x, call.x(1), call.axis(x.rank, 0))


def coordinates(places: Tensor, axis: int) -> Tensor:
    """Places along an axis as places in all dimensions, ``[..., rank]``, where they stand."""
    columns = []
    for at in range(places.rank):
        if at == axis:
            columns.append(ops.cast(places, DType.int64))
            continue
        own = [1 if other != at else places.shape[at] for other in range(places.rank)]
        numbers = ops.reshape(ops.range(0, places.shape[at]), own)
        columns.append(ops.broadcast_to(numbers, places.shape))
    return ops.stack(columns, axis=-1)


@operator("GatherElements")
def gather_elements(call: OperatorCall) -> Tensor:
    """Elements at places along an axis, each read at its own place in the others."""
    x, places = call.x(), call.x(1)
    return along(x, places, call.axis(x.rank, 0))


def along(x: Tensor, places: Tensor, axis: int) -> Tensor:
    """The elements of ``x`` at places along an axis, as NumPy's ``take_along_axis``."""
    return ops.gather_nd(x, coordinates(places, axis))


@operator("GatherND")
def gather_nd(call: OperatorCall) -> Tensor:
    """Elements or blocks at places in several dimensions."""
    return ops.gather_nd(call.x(), call.x(1), call.number("batch_dims", 0))


@operator("Scatter", "ScatterElements")
def scatter_elements(call: OperatorCall) -> Tensor:
    """Elements replaced at places along an axis, or combined with what is there."""
    x, places, updates = call.x(0), call.x(1), call.x(2)
    if updates.shape != places.shape and updates.rank == places.rank:
        updates = ops.rebind(updates, places.shape, "each place needs one update")
    axis, reduction = call.axis(x.rank, 0), call.text("reduction", "none")
    if reduction == "none":
        return ops.scatter_nd(x, updates, coordinates(places, axis))
    others = [at for at in range(x.rank) if at != axis]
    if reduction == "add" and all(x.shape[at] == places.shape[at] for at in others):
        return ops.scatter_add(x, updates, places, axis)
    rows = ops.reshape(coordinates(places, axis), [-1, x.rank])
    return _combined(x, rows, ops.reshape(updates, [-1]), reduction)


@operator("ScatterND")
def scatter_nd(call: OperatorCall) -> Tensor:
    """Elements or blocks replaced at places in several dimensions, or combined with them."""
    x, places, updates = call.x(0), call.x(1), call.x(2)
    reduction = call.text("reduction", "none")
    if reduction == "none":
        return ops.scatter_nd(x, updates, places)
    depth = int(places.shape[-1])
    rows = ops.reshape(places, [-1, depth])
    return _combined(x, rows, ops.reshape(updates, [rows.shape[0], *x.shape[depth:]]), reduction)


COMBINED: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": ops.add,
    "max": ops.maximum,
    "min": ops.minimum,
    "mul": ops.mul,
}
"""Reductions of elements that are there with updates."""


def _combined(x: Tensor, places: Tensor, updates: Tensor, reduction: str) -> Tensor:
    """Elements or blocks combined with updates at places, ``[n, depth]``, one after the other."""
    require(reduction in COMBINED, f"there is no reduction {reduction!r}")
    combine = COMBINED[reduction]
    count = as_number(places.shape[0], DType.int64)

    def step(turn: Tensor, result: Tensor) -> list[Tensor]:
        at = ops.reshape(turn, [1])
        place, update = ops.gather(places, at, 0), ops.gather(updates, at, 0)
        changed = combine(ops.gather_nd(result, place), update)
        return [turn + 1, ops.scatter_nd(result, changed, place)]

    graph = Graph.current()
    start = x if graph is None else graph.value(x)
    first = known(np.zeros((), np.int64))
    return ops.while_loop([first, start], lambda turn, _: ops.less(turn, count), step)[1]


@operator("TensorScatter")
def tensor_scatter(call: OperatorCall) -> Tensor:
    """A cache with new elements along an axis, from a place on that each batch says."""
    cache, updates = call.x(0), call.x(1)
    axis, mode = call.axis(cache.rank, -2), call.text("mode", "linear")
    require(mode in ("linear", "circular") and axis > 0, f"mode {mode!r} along the axis {axis}")
    starts = ops.reshape(call.x(2), [-1, 1]) if call.has(2) else known(np.zeros((1, 1), np.int64))
    numbers = ops.unsqueeze(ops.range(0, cache.shape[axis]), 0)
    count = as_number(updates.shape[axis], DType.int64)
    offset = numbers - ops.cast(starts, DType.int64)
    if mode == "circular":
        offset = ops.mod(offset, as_number(cache.shape[axis], DType.int64))
    offset = ops.broadcast_to(offset, [cache.shape[0], cache.shape[axis]])
    inside = ops.logical_and(ops.greater_equal(offset, 0), ops.less(offset, count))
    order = [0, axis, *(at for at in range(1, cache.rank) if at != axis)]
    places = ops.unsqueeze(ops.where(inside, offset, 0), -1)
    read = ops.gather_nd(ops.permute(updates, order), places, batch_dims=1)
    chosen = ops.reshape(inside, [*inside.shape, *[1] * (cache.rank - 2)])
    whole = ops.where(chosen, read, ops.permute(cache, order))
    return ops.permute(whole, [order.index(at) for at in range(cache.rank)])


@operator("NonZero")
def nonzero(call: OperatorCall) -> Tensor:
    """The places of what is not zero, a row for each dimension."""
    x = call.x()
    x = x if x.rank else ops.reshape(x, [1])
    found = known(np.argwhere(x.to_numpy()).astype(np.int64)) if is_known(x) else None
    return ops.transpose(ops.nonzero(x, call.dim("nonzero")) if found is None else found, 0, 1)


@operator("Compress")
def compress(call: OperatorCall) -> Tensor:
    """The slices for which a condition is true."""
    x, condition = call.x(0), call.x(1)
    x = x if "axis" in call.attributes else ops.flatten(x)
    axis = call.axis(x.rank, 0)
    if is_known(condition):
        places = known(np.flatnonzero(condition.to_numpy()).astype(np.int64))
    else:
        places = ops.reshape(
            chosen := ops.nonzero(condition, call.dim("chosen")), [chosen.shape[0]]
        )
    return ops.gather(x, places, axis)


@operator("OneHot")
def one_hot(call: OperatorCall) -> Tensor:
    """One value where the number along a new axis is the index, and another elsewhere."""
    indices, depth = call.x(0), call.size(1)
    low, high = (ops.reshape(one, []) for one in ops.split(call.x(2), [1, 1]))
    axis = axis_in(call.number("axis", -1), indices.rank + 1)
    whole = ops.cast(indices, DType.int64)
    number = as_number(Dim(depth), DType.int64)
    shape = [-1 if at == axis else 1 for at in range(indices.rank + 1)]
    numbers = ops.reshape(ops.range(0, depth), shape)
    beside = ops.unsqueeze(ops.where(ops.less(whole, 0), whole + number, whole), axis)
    return ops.where(ops.equal(numbers, beside), high, low)


@operator("Trilu")
def trilu(call: OperatorCall) -> Tensor:
    """The triangle above or below a diagonal of matrices, zeros elsewhere."""
    x = call.x()
    require(x.rank >= 2, "its input is a matrix, or several")
    k = int(call.known_or(1, 0).reshape(()))
    rows, columns = (ops.range(0, dim) for dim in x.shape[-2:])
    beside = ops.unsqueeze(columns, 0) - ops.unsqueeze(rows, 1)
    inside = ops.greater_equal(beside, k) if call.flag("upper", 1) else ops.less_equal(beside, k)
    return ops.where(inside, x, known(np.zeros((), x.dtype.to_numpy())))


@operator("TopK", since=1)
def top_k_by_attribute(call: OperatorCall) -> list[Tensor]:
    """The largest elements, their number as an attribute."""
    return _largest(call, call.number("k"))


@operator("TopK", since=10)
def top_k(call: OperatorCall) -> list[Tensor]:
    """The largest or smallest elements along an axis in order, and their places."""
    return _largest(call, call.size(1))


def _largest(call: OperatorCall, count: Size) -> list[Tensor]:
    x = call.x()
    axis = call.axis(x.rank, -1)
    largest = call.flag("largest", 1)
    if largest and isinstance(count, int):
        return list(ops.top_k(x, count, axis))
    places = _first(ops.argsort(x, not largest, axis), axis, count)
    return [along(x, places, axis), places]


def _first(order: Tensor, axis: int, count: Size) -> Tensor:
    """The first elements along an axis, if there are as many."""
    whole = order.shape[axis]
    require(not isinstance(count, int) or count >= 0, f"it takes {count} elements")
    if isinstance(count, int) and not whole.is_static:  # a call is held to it
        index = tuple(slice(count) if at == axis else slice(None) for at in range(order.rank))
        return ops.slice_tensor(order, index)
    fits = is_never_negative(whole.polynomial - polynomial(count))
    require(fits, f"whether a dimension of {whole} has {count} elements is not known")
    return cut_along(order, axis, Dim(0), Dim(count))


@operator("ReverseSequence")
def reverse_sequence(call: OperatorCall) -> Tensor:
    """The first elements of each row in reverse, as many as a length says."""
    x, lengths = call.x(0), ops.cast(call.x(1), DType.int64)
    batch, time = call.number("batch_axis", 1), call.number("time_axis", 0)
    require({batch, time} == {0, 1}, "batch_axis and time_axis are 0 and 1")
    each: list[DimLike] = [1, -1] if batch else [x.shape[0], 1]
    step = ops.unsqueeze(ops.range(0, x.shape[time]), 1 - time)
    count = ops.reshape(lengths, each)
    places = ops.where(ops.less(step, count), count - 1 - step, step)
    places = ops.broadcast_to(places, [x.shape[0], x.shape[1]])
    own = ops.reshape(ops.range(0, x.shape[batch]), each)
    rows = ops.broadcast_to(own, places.shape)
    pair = [rows, places] if batch == 0 else [places, rows]
    return ops.gather_nd(x, ops.stack(pair, axis=-1))
