"""Convolutions of images, and such that a batch norm follows, which is folded into them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import FoldedWeight, Tensor, Weight, ops
from maxtool.nn import Module

Array: TypeAlias = np.ndarray[Any, Any]
BATCH_EPS = 1e-5
"""What PyTorch's batch norms add to a variance."""


@dataclass(frozen=True, slots=True)
class Window:
    """A square window that slides over images.

    Attributes:
        size: Pixels of a side.
        stride: Pixels from one window to the next.
        padding: Rows and columns of zeros around an image.
        groups: Parts of the channels, each convolved for itself.
    """

    size: int
    stride: int = 1
    padding: int = 0
    groups: int = 1


class ImageConvolution(Module[[Tensor], Tensor]):
    """A convolution of ``[batch, height, width, channels]`` with a bias, in float32.

    Attributes:
        weight: ``[features, channels / groups, rows, columns]``, as PyTorch has it.
        filter: The same as kernels read it, with channels and features last.
        bias: ``[features]``.
    """

    def __init__(self, channels: int, features: int, window: Window) -> None:
        self.window = window
        self.weight = _filter(channels, features, window)
        self.filter = _folded(self.weight, (), _features_last)
        self.bias = Weight("bias", DType.float32, (features,))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, height, width, channels]`` to features for each window."""
        return _convolved(x, self.window, self.filter, self.bias)


class NormedConvolution(Module[[Tensor], Tensor]):
    """A convolution without a bias, and a batch norm by running statistics, as one.

    Attributes:
        weight: As in :class:`ImageConvolution`.
        filter: The same with the norm's factors, as kernels read it.
        gamma: ``[features]``, the norm's factors before they are divided by a deviation; so
            are ``beta``, which it adds, and the statistics ``mean`` and ``variance``.
        bias: ``[features]``, what the norm adds in all.
    """

    def __init__(self, channels: int, features: int, window: Window) -> None:
        self.window = window
        self.weight = _filter(channels, features, window)
        self.gamma, self.beta, self.mean, self.variance = (
            Weight(f"norm.{name}", DType.float32, (features,))
            for name in ("weight", "bias", "mean", "variance")
        )
        self.filter = _folded(self.weight, (self.gamma, self.variance), _scaled_filter)
        statistics = (self.beta, self.gamma, self.mean, self.variance)
        self.bias = FoldedWeight((features,), statistics, _offset)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, height, width, channels]`` to features for each window."""
        return _convolved(x, self.window, self.filter, self.bias)


def _filter(channels: int, features: int, window: Window) -> Weight:
    inner = channels // window.groups
    return Weight("weight", DType.float32, (features, inner, window.size, window.size))


def _folded(weight: Weight, others: tuple[Weight, ...], fold: Any) -> FoldedWeight:  # noqa: ANN401
    features, inner, rows, columns = weight.shape
    return FoldedWeight((rows, columns, inner, features), (weight, *others), fold)


def _convolved(x: Tensor, window: Window, filter_: Tensor, bias: Tensor) -> Tensor:
    return ops.conv2d(x, filter_, window.stride, 1, window.padding, window.groups, bias)


def _features_last(weight: Array) -> Array:
    return weight.transpose(2, 3, 1, 0)


def _factors(gamma: Array, variance: Array) -> Array:
    """The norm's factors; ValueError if there are none."""
    if not (variance >= 0).all():
        raise ValueError("the running variance of its batch norm is not 0 or more")
    factors: Array = gamma / np.sqrt(variance + BATCH_EPS)
    return factors


def _scaled_filter(weight: Array, gamma: Array, variance: Array) -> Array:
    scaled: Array = _features_last(weight) * _factors(gamma, variance)
    return scaled


def _offset(beta: Array, gamma: Array, mean: Array, variance: Array) -> Array:
    offset: Array = beta - mean * _factors(gamma, variance)
    return offset
