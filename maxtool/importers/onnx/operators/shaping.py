"""Operators that change shapes, join, cut, repeat and pad."""

from __future__ import annotations

from collections.abc import Sequence

from maxtool.graph import Dim, Shape, Tensor, ops
from maxtool.graph.ops.elementwise import broadcast
from maxtool.graph.ops.slicing import IndexRange, cut
from maxtool.importers.onnx.operator_call import OperatorCall, axis_in
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.operators.open_slices import open_slice
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import Size, is_never_negative

END = 1 << 31
"""Ends from here on mean the end of the dimension."""
FAR = 1 << 28
"""Ends from here on mean the end of a named size: exporters write numbers such as 10 ** 9."""


@operator("Reshape")
def reshape(call: OperatorCall) -> Tensor:
    """The same elements in another shape: 0 keeps a size, -1 is what is left."""
    x, sizes = call.x(), call.sizes(1)
    if not call.flag("allowzero"):
        require(
            all(size != 0 or index < x.rank for index, size in enumerate(sizes)),
            "a 0 in the shape stands for a size that the input does not have",
        )
        sizes = [x.shape[index] if size == 0 else size for index, size in enumerate(sizes)]
    if list(sizes) == list(x.shape):
        return x
    return ops.reshape(_claimed(x, sizes), sizes)


def _claimed(x: Tensor, sizes: Sequence[Size]) -> Tensor:
    """The elements, claimed to be as many as a shape has where names do not tell."""
    if any(isinstance(size, int) and size < 0 for size in sizes):
        return x
    wanted, given = Shape([Dim(size) for size in sizes]).volume(), x.shape.volume()
    if wanted == given or (wanted.is_static and given.is_static):
        return x
    return ops.rebind(ops.reshape(x, [given]), [wanted], "Reshape needs as many elements")


@operator("Transpose")
def transpose(call: OperatorCall) -> Tensor:
    """The dimensions in another order."""
    x = call.x()
    return ops.permute(x, call.numbers("perm", range(x.rank)[::-1]))


@operator("Flatten")
def flatten(call: OperatorCall) -> Tensor:
    """A matrix: the dimensions before an axis joined, and the others."""
    x = call.x()
    axis = call.number("axis", 1)
    require(-x.rank <= axis <= x.rank, f"there is no dimension {axis} in {x.rank}")
    axis = axis + x.rank if axis < 0 else axis
    return ops.reshape(x, [x.shape[:axis].volume(), x.shape[axis:].volume()])


def axes_given(call: OperatorCall, default: Sequence[int] | None = None) -> list[int]:
    """The axes, an attribute once and an input now."""
    return call.ints(1) if call.has(1) else call.numbers("axes", default)


@operator("Squeeze")
def squeeze(call: OperatorCall) -> Tensor:
    """The elements without dimensions of size 1: those that are named, else all."""
    x = call.x()
    ones = [axis for axis, dim in enumerate(x.shape) if dim == 1]
    axes = {axis_in(axis, x.rank) for axis in axes_given(call, ones)}
    fits = all(x.shape[axis] == 1 or not x.shape[axis].is_static for axis in axes)
    require(fits, f"not all of {sorted(axes)} are of size 1")
    if any(not x.shape[axis].is_static for axis in axes):
        claimed = [1 if axis in axes else dim for axis, dim in enumerate(x.shape)]
        x = ops.rebind(x, claimed, "Squeeze needs sizes of 1")
    return ops.reshape(x, [dim for axis, dim in enumerate(x.shape) if axis not in axes])


@operator("Unsqueeze")
def unsqueeze(call: OperatorCall) -> Tensor:
    """The elements with dimensions of size 1 more."""
    x, given = call.x(), axes_given(call)
    rank = x.rank + len(given)
    axes = {axis_in(axis, rank) for axis in given}
    require(len(axes) == len(given), f"an axis is twice among {given}")
    dims = iter(x.shape)
    return ops.reshape(x, [1 if axis in axes else next(dims) for axis in range(rank)])


@operator("Concat")
def concat(call: OperatorCall) -> Tensor:
    """Tensors one after the other along an axis."""
    tensors = call.tensors()
    return ops.concat(tensors, call.axis(tensors[0].rank))


@operator("Split")
def split(call: OperatorCall) -> list[Tensor]:
    """Pieces along an axis: of sizes that are given, else equal but perhaps for the last."""
    x = call.x()
    axis = call.axis(x.rank, 0)
    return ops.split(x, _piece_sizes(call, x.shape[axis]), axis)


def _piece_sizes(call: OperatorCall, whole: Dim) -> list[Size]:
    if call.has(1):
        return call.sizes(1)
    if "split" in call.attributes:
        return [*call.numbers("split")]
    count = call.number("num_outputs", len(call.results))
    require(0 < count <= len(call.results), f"{count} pieces for {len(call.results)} outputs")
    if not whole.is_static:
        return [whole // count] * count
    each = -(-int(whole) // count)
    return [min(each, int(whole) - each * index) for index in range(count)]


@operator("Slice", since=1)
def slice_by_attributes(call: OperatorCall) -> Tensor:
    """Ranges as attributes."""
    starts, ends = call.numbers("starts"), call.numbers("ends")
    axes = call.numbers("axes", range(len(starts)))
    return _sliced(call, starts, ends, axes, [1] * len(starts))


@operator("Slice", since=10)
def slice_(call: OperatorCall) -> Tensor:
    """Ranges as operands."""
    call.decide(3, 4)
    if call.unknown(1, 2):
        return open_slice(call, *_axes_and_steps(call))
    return _sliced(call, call.sizes(1), call.sizes(2), *_axes_and_steps(call))


def _axes_and_steps(call: OperatorCall) -> tuple[list[int], list[int]]:
    """The axes of a slice, the first ones if they are not said, and the steps along them."""
    axes = call.ints(3) if call.has(3) else [*range(_count(call))]
    return axes, call.ints(4) if call.has(4) else [1] * len(axes)


def _count(call: OperatorCall) -> int:
    """The number of ranges of a slice."""
    if not call.unknown(1):
        return len(call.sizes(1))
    starts = call.x(1)
    fits = starts.rank == 1 and starts.shape[0].is_static
    require(fits, f"how many ranges {starts.type} has is not known")
    return int(starts.shape[0])


def _sliced(
    call: OperatorCall,
    starts: Sequence[Size],
    ends: Sequence[Size],
    axes: Sequence[int],
    steps: Sequence[int],
) -> Tensor:
    require(len(starts) == len(ends) == len(axes) == len(steps), "its ranges are not as many")
    x = call.x()
    index = [slice(None)] * x.rank
    for start, end, given, step in zip(starts, ends, axes, steps, strict=True):
        axis = axis_in(given, x.rank)
        require(step != 0, "a step is 0")
        if isinstance(end, Dim) and end == x.shape[axis]:
            end = END
        if isinstance(start, Dim) or isinstance(end, Dim):
            x = _between(call, x, axis, (start, end, step))
        else:
            index[axis] = _range(x.shape[axis], start, end, step)
    return ops.slice_tensor(x, tuple(index))


def _range(dim: Dim, start: int, end: int, step: int) -> slice:
    """A range of a dimension, as ONNX has it: one that runs backwards begins inside."""
    far = END if dim.is_static else FAR
    if step < 0 and dim.is_static:
        start = max(start, -int(dim))
    first = None if abs(start) >= far and (start > 0) == (step < 0) else start
    return slice(first, None if abs(end) >= far and (end > 0) == (step > 0) else end, step)


def _between(call: OperatorCall, x: Tensor, axis: int, bounds: tuple[Size, Size, int]) -> Tensor:
    """The elements between two places of which one is a named size.

    It is that of the dimension, or where those of a dimension of known size end: then no call may
    bring a larger one.
    """
    whole, (start, end, step) = x.shape[axis], bounds
    require(step == 1, "a range that ends at a named size has the step 1")
    first, stop = _place(whole, start), _place(whole, end)
    if whole.is_static:
        _bound(call, stop, int(whole))
    else:
        inside = {*first.names(), *stop.names()} <= {*whole.names()}
        inside = inside and is_never_negative(whole.polynomial - stop.polynomial)
        why = f"whether {first} to {stop} is inside a dimension of {whole} is not known in advance"
        require(inside, f"{why}; --shape gives sizes")
    require(
        first.is_static or _is_ordered(first, stop, whole),
        f"whether {first} is at most {stop} is not known in advance; --shape gives sizes",
    )
    ranges = [*map(IndexRange.all, x.shape)]
    ranges[axis] = IndexRange(first, 1, stop - first)
    return cut(x, ranges)


def _is_ordered(first: Dim, stop: Dim, whole: Dim) -> bool:
    """Return whether a range begins in its dimension, and does not end before it begins."""
    length = stop.polynomial - first.polynomial
    ends = stop == whole or is_never_negative(length)
    return is_never_negative(first.polynomial) and ends


def _bound(call: OperatorCall, stop: Dim, whole: int) -> None:
    """Let no call bring a size with which a range ends beyond a dimension."""
    names, terms = stop.names(), stop.polynomial.terms
    growing = len(names) == 1 and all(factor > 0 for product, factor in terms if product)
    why = f"whether {stop} is inside a dimension of {whole} is not known in advance"
    require(growing and stop.size({names[0]: 1}) <= whole, f"{why}; --shape gives sizes")
    low, high = 1, whole + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if stop.size({names[0]: middle}) <= whole else (low, middle)
    call.at_most(names[0], low)


def _place(whole: Dim, place: Size) -> Dim:
    if isinstance(place, Dim):
        return place
    return whole if place >= FAR else whole + place if place < 0 else Dim(place)


@operator("Expand")
def expand(call: OperatorCall) -> Tensor:
    """Repeated along dimensions that are 1 or missing."""
    x, sizes = call.x(), call.sizes(1)
    return ops.broadcast_to(x, broadcast(x.shape, Shape([Dim(size) for size in sizes])))


@operator("Tile")
def tile(call: OperatorCall) -> Tensor:
    """Repeated as a whole along each dimension."""
    return ops.tile(call.x(), call.sizes(1))


@operator("DepthToSpace")
def depth_to_space(call: OperatorCall) -> Tensor:
    """Channels laid out in blocks of pixels."""
    x, block = call.x(), call.number("blocksize")
    batch, channels, *sizes = x.shape
    if call.text("mode", "DCR") == "DCR":
        apart = ops.reshape(x, [batch, block, block, channels // (block * block), *sizes])
        moved = ops.permute(apart, (0, 3, 4, 1, 5, 2))
    else:
        apart = ops.reshape(x, [batch, channels // (block * block), block, block, *sizes])
        moved = ops.permute(apart, (0, 1, 4, 2, 5, 3))
    return ops.reshape(moved, [batch, channels // (block * block), *(dim * block for dim in sizes)])


@operator("SpaceToDepth")
def space_to_depth(call: OperatorCall) -> Tensor:
    """Blocks of pixels laid out as channels."""
    x, block = call.x(), call.number("blocksize")
    batch, channels, height, width = x.shape
    rows, columns = height // block, width // block
    apart = ops.reshape(x, [batch, channels, rows, block, columns, block])
    order = (0, 3, 5, 1, 2, 4) if call.text("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    moved = ops.permute(apart, order)
    return ops.reshape(moved, [batch, channels * (block * block), rows, columns])
