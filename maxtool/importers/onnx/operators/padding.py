"""Padding: with a value, with elements of the tensor itself, and as windows need it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import Dim, Tensor, ops
from maxtool.graph.ops.operation_table import as_number
from maxtool.graph.ops.slicing import cut_along
from maxtool.importers.onnx.operator_call import OperatorCall, axis_in
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.operators.constants import full
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import Size, is_never_negative, known, polynomial, size_of


@operator("Pad", since=1)
def pad_by_attributes(call: OperatorCall) -> Tensor:
    """Padding as attributes."""
    x, name = call.x(), "pads" if "pads" in call.attributes else "paddings"
    value = known(np.array(call.real("value", 0.0), x.dtype.to_numpy()))
    return _padded(x, call.numbers(name), list(range(x.rank)), call.text("mode", "constant"), value)


@operator("Pad", since=11)
def pad(call: OperatorCall) -> Tensor:
    """Padding as operands: numbers before, then numbers after, each axis; negative ones cut."""
    call.decide(1, 3)
    x = call.x()
    axes = [axis_in(axis, x.rank) for axis in call.ints(3)] if call.has(3) else [*range(x.rank)]
    zero = known(np.zeros((), x.dtype.to_numpy()))
    value = ops.reshape(call.x(2), []) if call.has(2) else zero
    return _padded(x, call.sizes(1), axes, call.text("mode", "constant"), value)


def _padded(
    x: Tensor, pads: Sequence[Size], axes: Sequence[int], mode: str, value: Tensor
) -> Tensor:
    require(len(pads) == 2 * len(axes), f"{len(pads)} pads for {len(axes)} axes")
    for at, axis in enumerate(axes):
        low, high = pads[at], pads[at + len(axes)]
        if isinstance(low, Dim) or isinstance(high, Dim):
            require(mode == "constant", f"padding by a named size by the mode {mode}")
            x = _with_block(x, axis, low, value, before=True)
            x = _with_block(x, axis, high, value, before=False)
    plain = [0 if isinstance(one, Dim) else one for one in pads]
    open_ = [isinstance(one, Dim) for one in pads]
    pairs = {
        axis: (plain[at], plain[at + len(axes)])
        for at, axis in enumerate(axes)
        if not (open_[at] or open_[at + len(axes)])
    }
    before, after = ([pairs.get(axis, (0, 0))[side] for axis in range(x.rank)] for side in range(2))
    x = _cut(x, before, after)
    grown = [(max(low, 0), max(high, 0)) for low, high in zip(before, after, strict=True)]
    if mode == "constant":
        flat = [size for pair in grown for size in pair]
        return ops.pad(x, flat, value=value) if any(flat) else x
    return _mirrored(x, grown, mode)


def _cut(x: Tensor, before: Sequence[int], after: Sequence[int]) -> Tensor:
    """A tensor without what negative padding takes away."""
    pairs = zip(before, after, strict=True)
    cuts = [slice(max(-low, 0), -max(-high, 0) or None) for low, high in pairs]
    return ops.slice_tensor(x, tuple(cuts)) if any(one != slice(0, None) for one in cuts) else x


def _with_block(x: Tensor, axis: int, size: Size, value: Tensor, *, before: bool) -> Tensor:
    """A tensor and a block of a value, whose size follows from named ones, before or behind it.

    A size that may be negative, when it takes elements away, leaves so many as are known to be.
    """
    if size == 0:
        return x
    whole, grows = x.shape[axis], is_never_negative(polynomial(size))
    total = polynomial(size) + whole.polynomial
    require(grows or is_never_negative(total), f"whether {size} is negative is not known")
    added = size if grows else size_of(total)
    block = full(value, [added if at == axis else dim for at, dim in enumerate(x.shape)])
    grown = ops.concat([block, x] if before else [x, block], axis)
    return grown if grows else cut_along(grown, axis, whole if before else Dim(0), Dim(added))


MODES = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}


def _mirrored(x: Tensor, grown: Sequence[tuple[int, int]], mode: str) -> Tensor:
    """Padded with elements of the tensor itself, along each axis in turn."""
    require(mode in MODES, f"there is no mode {mode!r}")
    for axis, widths in enumerate(grown):
        if not any(widths):
            continue
        whole = x.shape[axis]
        if whole.is_static:
            places = np.pad(np.arange(int(whole)), widths, MODES[mode])  # type: ignore[call-overload]
            x = ops.gather(x, known(places.astype(np.int64)), axis)
        else:
            x = ops.gather(x, _open_places(whole, widths, mode), axis)
    return x


def _open_places(whole: Dim, widths: tuple[int, int], mode: str) -> Tensor:
    """The places that are read, of a size that a call brings."""
    size = as_number(whole, DType.int64)
    numbers = ops.range(0, whole + sum(widths)) - widths[0]
    return OPEN_MODES[mode](numbers, size)


def _reflected(at: Tensor, size: Tensor) -> Tensor:
    """Places that go back and forth, without the ends twice."""
    period = (size - 1) * 2
    inside = ops.mod(at, ops.maximum(period, 1))
    return ops.minimum(inside, period - inside)


OPEN_MODES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "edge": lambda at, size: ops.maximum(ops.minimum(at, size - 1), 0),
    "reflect": _reflected,
    "wrap": ops.mod,
}


def padded_for_windows(
    x: Tensor, sizes: Sequence[int], strides: Sequence[int], value: float, *, upper: bool
) -> Tensor:
    """``[batch, ..., channels]`` with what windows need so that ``ceil(size / stride)`` fit.

    Of known sizes and of a stride of 1 the padding is known, and of windows of 1 there is none;
    the others get more than that on both sides, and are cut.
    """
    for at, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        whole, axis = x.shape[at + 1], at + 1
        if needs_cutting(whole, size, stride):
            require(size >= stride, "auto_pad of a named size needs windows as large as the stride")
            reached = ((whole - 1) // stride) * stride + size
            total = reached - whole
            before = total // 2 if upper else total - total // 2
            blocks = [0] * (2 * x.rank)
            blocks[2 * axis : 2 * axis + 2] = [size - 1, size - 1]
            grown = ops.pad(x, blocks, value=known(np.array(value, x.dtype.to_numpy())))
            x = cut_along(grown, axis, (size - 1) - before, reached)
    return x


def needs_cutting(whole: Dim, size: int, stride: int) -> bool:
    """Return whether the padding of a dimension is known only when the graph runs."""
    return not whole.is_static and stride > 1 and size > 1
