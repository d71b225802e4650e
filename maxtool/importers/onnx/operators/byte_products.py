"""Products and convolutions of bytes with weights of bytes, as sums of whole numbers.

Weights less their zero points have to fit int8, and are known while the model is imported. Where
something else is asked for, there is no such product, and floats are computed with.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import BYTES, DType
from maxtool.graph import Tensor, Weight, ops
from maxtool.graph.ops.integer_convolution import MOST_TERMS
from maxtool.importers.onnx.initializers import ModelWeight
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operators.convolving import convolved
from maxtool.importers.onnx.origins import Origin, Part, elements
from maxtool.importers.onnx.values import is_known, known

SAME_SCALE = 1e-6
"""How far the scale of a bias may be from that of the sums, relative to it: it was rounded."""

NOTHING = np.zeros((), np.int32)
MIDDLE = np.full((), 128, np.int32)


def convolution_sums(
    call: OperatorCall, x: Tensor, zero: int, weight: Tensor, bias: Tensor | None = None
) -> Tensor | None:
    """The sums of the convolution that attributes describe, of bytes, channels first; or None.

    ``weight`` is int8 without a zero point, as :func:`signed` gives it; ``bias`` int32.
    """
    if not call.origins.are_kept or not _has_kernel(call, x, weight):
        return None

    def convolve(
        image: Tensor,
        filters: Tensor,
        stride: Any,  # noqa: ANN401 - one size or several
        dilation: Any,  # noqa: ANN401
        pads: Any,  # noqa: ANN401
        groups: int,
        bias: Tensor | None,
    ) -> Tensor:
        return ops.integer_convolution(image, filters, zero, stride, dilation, pads, groups, bias)

    return convolved(call, x, weight, bias, convolve, float(zero))


def _has_kernel(call: OperatorCall, x: Tensor, weight: Tensor) -> bool:
    """Return whether there is a kernel for the bytes; what any convolution has is no faster."""
    known = x.shape[1].is_static and weight.shape.is_static
    if not 2 < x.rank == weight.rank < 5 or not known or 0 in (*x.shape[1:], *weight.shape):
        return False
    if int(weight.shape[1:].volume()) > MOST_TERMS:
        return False
    groups = call.number("group", 1)
    return groups == 1 or groups == x.shape[1] == weight.shape[0]


def product_sums(
    x: Tensor, zero: int, matrix: Tensor, bias: Tensor | None = None, *, transposed: bool = False
) -> Tensor | None:
    """The sums of ``x @ matrix``, of bytes less their zero point and such weights; or None."""
    if matrix.rank != 2 or x.rank == 0 or not matrix.shape.is_static or 0 in x.shape:
        return None
    terms, features = matrix.shape.static()[:: -1 if transposed else 1]
    if terms > MOST_TERMS or x.shape[-1] != terms or 0 in (terms, features):
        return None
    filters = _as_filter(matrix, transposed=transposed)
    if filters is None:
        return None
    rows = x.shape[:-1].volume()
    # Pixels of one line, or, of an unknown number, lines of one pixel.
    known_rows = x.shape[:-1].is_static
    lines = ops.reshape(x, [1, rows, terms] if known_rows else [rows, 1, terms])
    sums = ops.integer_convolution(lines, filters, zero, bias=bias)
    return ops.reshape(sums, [*x.shape[:-1], features])


def _as_filter(matrix: Tensor, *, transposed: bool) -> Tensor | None:
    """A matrix as the filter of single pixels, ``[1, terms, features]``."""
    terms, features = matrix.shape.static()[:: -1 if transposed else 1]
    shape = [1, terms, features]

    def arranged(values: NDArray[Any]) -> NDArray[Any]:
        return (values.T if transposed else values).reshape(shape)

    if isinstance(matrix, ModelWeight):
        return matrix.derived(f"filter{'_T' * transposed}", shape, matrix.dtype, arranged)
    values = elements(matrix)
    return None if values is None else known(np.ascontiguousarray(arranged(values)))


def signed(weight: Tensor, zero: NDArray[Any]) -> Tensor | None:
    """Weights of bytes less their zero points as int8, if they are known and fit."""
    if weight.dtype not in BYTES:
        return None
    if not (isinstance(weight, Weight) or is_known(weight)):
        return None
    if weight.dtype is DType.int8 and not zero.any():
        return weight
    less = zero.astype(np.int16)
    centred = weight.to_numpy().astype(np.int16) - less
    if centred.size and (centred.min() < -128 or centred.max() > 127):
        return None
    if not isinstance(weight, ModelWeight):
        return known(centred.astype(np.int8))
    shape = weight.shape.static()
    how = sha256(repr((less.shape, less.tobytes())).encode()).hexdigest()[:16]
    return weight.derived(
        f"signed_{how}",
        shape,
        DType.int8,
        lambda values: (values.astype(np.int16) - less).astype(np.int8),
    )


def scaled(
    call: OperatorCall, sums: Tensor, scale: NDArray[Any], offset: Tensor | None = None
) -> Tensor:
    """Sums as floats, and a bias of floats that broadcasts; it is remembered what they are."""
    factor = scale.astype(np.float32)
    result = ops.cast(sums, DType.float32) * known(factor)
    part = Part(sums, NOTHING, factor)
    if offset is None:
        return call.origins.note(result, Origin((part,)))
    result = result + offset
    values = elements(offset)
    if values is None or values.dtype != np.float32:
        return result
    return call.origins.note(result, Origin((part,), values))


def whole_bias(
    call: OperatorCall, bias: Tensor | None, scale: NDArray[Any], features: int
) -> Tensor | None:
    """A bias as int32 of the scale of the sums, if it is such."""
    origin = call.origins.of(bias)
    if origin is None or len(origin.parts) > 1 or origin.offset is not None:
        return None
    part = origin.parts[0]
    whole = part.numbers.dtype is DType.int32 and not part.zero.any() and not origin.positive
    if not whole or part.numbers.shape != [features]:
        return None
    wanted = np.broadcast_to(scale.astype(np.float64).reshape(-1), features)
    given = np.broadcast_to(part.scale.astype(np.float64).reshape(-1), features)
    return part.numbers if np.allclose(given, wanted, rtol=SAME_SCALE, atol=0) else None


def known_points(
    call: OperatorCall, x: Tensor, zero: Tensor | None, start: Tensor | None
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The zero point of bytes, and those of what they are multiplied with; or None.

    They have to be known, that of the bytes has to be one, and bytes have to be worth it.
    """
    place = elements(zero) if zero is not None else NOTHING
    starts = elements(start) if start is not None else NOTHING
    if not call.origins.are_kept or x.dtype not in BYTES or place is None or starts is None:
        return None
    return (place.reshape(()), starts) if place.size == 1 else None


def multiplied(
    call: OperatorCall,
    x: Tensor,
    zero: Tensor | None,
    matrix: Tensor,
    start: Tensor | None,
    *,
    transposed: bool = False,
) -> Tensor | None:
    """The sums of a product of bytes with a known matrix, each less zero points; or None.

    There is one zero point of ``x``, and one of the matrix or one of each of its columns.
    """
    points = known_points(call, x, zero, start)
    if points is None:
        return None
    place, starts = points
    columns = starts.reshape(-1, 1) if transposed and starts.size > 1 else starts
    weight = signed(matrix, columns)
    if weight is None:
        return None
    numbers, point = call.origins.levels(x, place)
    return product_sums(numbers, int(point), weight, transposed=transposed)


def multiplied_later(
    call: OperatorCall, x: Tensor, zero: Tensor, matrix: Tensor, start: Tensor | None
) -> Tensor | None:
    """The same where the zero point of ``x`` is computed: that of dynamic quantization; or None.

    What a zero point takes off is the same for all rows: it times the sum of a column. Weights that
    do not fit int8 less their own zero points are less 128 first, and what is left of these times
    the sum of a row is added.
    """
    starts = elements(start) if start is not None else NOTHING
    fits = call.origins.are_kept and x.dtype in BYTES and zero.shape.volume() == 1
    if not fits or starts is None or matrix.rank != 2:
        return None
    weight, left = signed(matrix, starts), NOTHING
    if weight is None and matrix.dtype is DType.uint8:
        weight, left = signed(matrix, MIDDLE), MIDDLE - starts.astype(np.int32)
    sums = None if weight is None else product_sums(x, 0, weight)
    if weight is None or sums is None:
        return None
    point = ops.cast(ops.reshape(zero, []), DType.int32)
    columns = weight.to_numpy().sum(0, dtype=np.int32)
    total = sums - point * known(columns)
    if not left.any():
        return total
    terms = np.int32(int(weight.shape[0]))
    rows = ops.sum(ops.cast(x, DType.int32), -1) - point * terms
    return total + rows * known(left)
