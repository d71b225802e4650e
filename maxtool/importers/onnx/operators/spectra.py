"""Discrete Fourier transforms, of whole signals and of windows of them, and mel filters.

A transform is a product with a table of cosines and one of sines, so its length must be known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import pi

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.graph import Dim, Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall, axis_in, dtype_of
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.operators.constants import held
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import known

MOST_POINTS = 1 << 13
"""Points of a transform; its tables have the square of them."""
FLOATS = (DType.float32, DType.float64)


@lru_cache(maxsize=8)
def _angles(points: int) -> NDArray[np.float64]:
    """``2 pi n k / points`` for all n and k, exact to the last place for large products."""
    numbers = np.arange(points)
    turns = (numbers[:, None] * numbers[None, :] % points).astype(np.float64)
    return np.multiply(turns, 2 * pi / points)


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform of so many points along the last dimension.

    Attributes:
        call: The node.
        points: The length.
        bins: How many of its results are computed.
    """

    call: OperatorCall
    points: int
    bins: int

    def forward(self, real: Tensor, imaginary: Tensor | None) -> tuple[Tensor, Tensor]:
        """``sum(x[n] * exp(-2 pi i n k / points))``, real and imaginary part."""
        cos, sin = self._tables(real.dtype)
        if imaginary is None:
            return ops.matmul(real, cos), -ops.matmul(real, sin)
        return (
            ops.matmul(real, cos) + ops.matmul(imaginary, sin),
            ops.matmul(imaginary, cos) - ops.matmul(real, sin),
        )

    def backward(self, real: Tensor, imaginary: Tensor | None) -> tuple[Tensor, Tensor]:
        """``sum(x[k] * exp(2 pi i n k / points)) / points``, real and imaginary part."""
        share = 1.0 / self.points
        turned = None if imaginary is None else -imaginary
        first, second = self.forward(real, turned)
        return first * share, -second * share

    def _tables(self, dtype: DType) -> tuple[Tensor, Tensor]:
        angles = _angles(self.points)[:, : self.bins]
        kind = dtype.to_numpy()
        return held(self.call, np.cos(angles).astype(kind)), held(
            self.call, np.sin(angles).astype(kind)
        )


@operator("DFT", since=17)
def transform_along_attribute(call: OperatorCall) -> Tensor:
    """The transform along the attribute ``axis``."""
    x = call.x()
    return _transformed(call, x, call.axis(x.rank, 1))


@operator("DFT", since=20)
def transform(call: OperatorCall) -> Tensor:
    """The transform along a dimension that an operand says, the last but one if none does."""
    x = call.x()
    return _transformed(call, x, axis_in(int(call.known_or(2, -2).reshape(())), x.rank))


def _transformed(call: OperatorCall, x: Tensor, axis: int) -> Tensor:
    """Numbers ``[..., 1 or 2]`` transformed along an axis before the last dimension."""
    require(axis != x.rank - 1, "the last dimension is real and imaginary part")
    inverse, onesided = call.flag("inverse"), call.flag("onesided")
    call.decide(1)
    count = x.shape[axis]
    require(count.is_static, "the transform of a named size")
    half_given = inverse and onesided
    default = 2 * (int(count) - 1) if half_given else int(count)
    points = int(call.known_or(1, default).reshape(()))
    require(0 < points <= MOST_POINTS, f"a transform of {points} points; at most {MOST_POINTS}")
    real, imaginary = _parts(call, ops.transpose(x, axis, x.rank - 2))
    if half_given:
        return ops.transpose(_from_half(call, real, imaginary, points), axis, x.rank - 2)
    bins = points // 2 + 1 if onesided else points
    require(not onesided or imaginary is None, "onesided is for real numbers")
    transform_ = Transform(call, points, bins)
    run = transform_.backward if inverse else transform_.forward
    fitted = None if imaginary is None else _fitted(imaginary, points)
    parts = run(_fitted(real, points), fitted)
    return ops.transpose(ops.stack(parts, -1), axis, x.rank - 2)


def _parts(call: OperatorCall, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Real and imaginary part of ``[..., 1 or 2]``."""
    require(x.dtype in FLOATS, f"{call.op_type} of {x.dtype.value} is not supported")
    require(x.shape[-1] in (1, 2), f"{x.type} has no dimension of 1 or 2 at its end")
    parts = [ops.squeeze(one, -1) for one in ops.split(x, 1, -1)]
    return parts[0], parts[1] if len(parts) > 1 else None


def _fitted(x: Tensor, points: int) -> Tensor:
    """The first elements of rows, and zeros behind them where there are fewer."""
    count = int(x.shape[-1])
    if count >= points:
        return ops.slice_tensor(x, (..., slice(points))) if count > points else x
    zero = known(np.zeros((), x.dtype.to_numpy()))
    return ops.pad(x, [*[0] * (2 * x.rank - 1), points - count], value=zero)


def _from_half(call: OperatorCall, real: Tensor, imaginary: Tensor | None, points: int) -> Tensor:
    """Real numbers, ``[..., points, 1]``, from the first half of their transform."""
    require(imaginary is not None, "the inverse of a half has real and imaginary parts")
    half = points // 2 + 1
    kind = real.dtype.to_numpy()
    twice = np.full((half, 1), 2.0)
    twice[0] = 1.0
    if points % 2 == 0:
        twice[-1] = 1.0
    angles = _angles(points)[:half]
    tables = (np.cos(angles) * twice / points, -np.sin(angles) * twice / points)
    cos, sin = (held(call, one.astype(kind)) for one in tables)
    parts = [_fitted(one, half) for one in (real, imaginary) if one is not None]
    return ops.unsqueeze(ops.matmul(parts[0], cos) + ops.matmul(parts[1], sin), -1)


@operator("STFT")
def short_time_transform(call: OperatorCall) -> Tensor:
    """The transform of each window of signals, ``[batch, windows, bins, 2]``."""
    call.decide(1, 3)
    signal = call.x(0)
    signal = signal if signal.rank == 3 else ops.unsqueeze(signal, -1)
    step, length = int(call.known(1).reshape(())), signal.shape[1]
    window = call.maybe(2)
    require(window is not None or call.has(3), "neither a window nor frame_length is given")
    size = window.shape[0] if window is not None else Dim(int(call.known(3).reshape(())))
    require(size.is_static, "a window of a named size")
    points = int(size)
    most = min(int(length), MOST_POINTS) if length.is_static else MOST_POINTS
    require(0 < points <= most and step > 0, "windows that do not fit")
    require(not call.has(3) or int(call.known(3).reshape(())) == points, "frame_length differs")
    real, imaginary = _parts(call, ops.gather(signal, _places(call, length, points, step), 1))
    onesided = call.flag("onesided", 1)
    require(not onesided or imaginary is None, "onesided is for real numbers")
    if window is not None:
        real = real * window
        imaginary = None if imaginary is None else imaginary * window
    bins = points // 2 + 1 if onesided else points
    return ops.stack(Transform(call, points, bins).forward(real, imaginary), -1)


def _places(call: OperatorCall, length: Dim, points: int, step: int) -> Tensor:
    """Places of the elements of windows, ``[windows, points]``."""
    windows = (length - points) // step + 1
    if length.is_static:
        starts = np.arange(int(windows))[:, None] * step
        return held(call, (starts + np.arange(points)).astype(np.int64))
    return ops.unsqueeze(ops.range(0, windows) * step, 1) + ops.range(0, points)


@operator("MelWeightMatrix")
def mel_weights(call: OperatorCall) -> Tensor:
    """Triangles over the bins of a spectrum, evenly spaced in mels, ``[bins, mels]``."""
    call.decide(0, 1, 2, 3, 4)
    mels, points, rate = (int(call.known(at).reshape(())) for at in range(3))
    low, high = (float(call.known(at).reshape(())) for at in (3, 4))
    fits = 0 < mels <= MOST_POINTS and 0 < points <= 16 * MOST_POINTS and rate > 0
    require(fits and 0 <= low < high <= rate, "its sizes or frequencies are not such")
    edges = _edges(mels, points, rate, (low, high))
    bins = np.arange(points // 2 + 1)[:, None]
    first, middle, last = (edges[at : at + mels][None, :] for at in range(3))
    require(int(edges[mels + 1]) <= points // 2 + 1, "a frequency is above the spectrum")
    with np.errstate(divide="ignore", invalid="ignore"):
        rising = np.where(middle > first, (bins - first) / (middle - first), 1.0)
        falling = (last - bins) / (last - middle)
    weights = np.where((bins >= first) & (bins <= middle), rising, 0.0)
    weights = np.where((bins > middle) & (bins < last), falling, weights)
    return known(weights.astype(dtype_of(call.number("output_datatype", 1)).to_numpy()))


def _edges(mels: int, points: int, rate: int, limits: tuple[float, float]) -> NDArray[np.int64]:
    """The bins where triangles begin, peak and end (ONNX's definition of the operator)."""
    low, high = (2595 * np.log10(1 + one / 700) for one in limits)
    at = low + np.arange(mels + 2) * ((high - low) / (mels + 2))
    hertz = 700 * (10 ** (at / 2595) - 1)
    return np.asarray((points + 1) * hertz // rate, np.int64)
