"""Convolutions: what both styles of layer share, and the layers of the graph style."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeAlias

from maxtool.dtype import DType
from maxtool.graph import DeviceRef, Tensor, Weight, ops
from maxtool.nn.module import Module

Sizes: TypeAlias = "int | Sequence[int]"


class Convolution:
    """The options of a convolution layer, and what it computes with its filter.

    A style adds ``weight`` and ``bias`` to it: the shape of the filter is what
    :meth:`_configure` returns.
    """

    spatial: ClassVar[int]

    def _configure(
        self,
        kernel_size: Sizes,
        channels: tuple[int, int],
        stride: Sizes,
        padding: Sizes,
        dilation: Sizes,
        num_groups: int,
        permute: bool,
    ) -> tuple[int, ...]:
        """Check and keep the options; returns the shape of the filter."""
        kernel = _sizes(kernel_size, self.spatial)
        self.kernel_size, (self.in_channels, self.out_channels) = kernel, channels
        self.stride, self.padding = _plain(stride), _plain(padding)
        self.dilation, self.num_groups, self.permute = _plain(dilation), num_groups, permute
        name, sizes = type(self).__name__, (*kernel, *channels, num_groups)
        if len(kernel) != self.spatial or min(sizes) < 1:
            listed = f"kernel {list(kernel)}, channels {channels}, {num_groups} groups"
            raise ValueError(f"{name}: {listed}: {self.spatial} kernel sizes, all above 0")
        if any(count % num_groups for count in channels):
            raise ValueError(f"{name}: {num_groups} groups do not divide channels {channels}")
        inner = self.in_channels // num_groups
        first = (self.out_channels, inner, *kernel)
        return first if permute else (*kernel, inner, self.out_channels)

    def _convolved(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """``x`` convolved with the filter, plus the bias."""
        channels = x.shape[1 if self.permute else -1] if x.rank == self.spatial + 2 else None
        if channels != self.in_channels:
            places = ["height", "width"] if self.spatial == 2 else ["length"]
            own = f"{self.in_channels} channels"
            order = ["batch", own, *places] if self.permute else ["batch", *places, own]
            raise ValueError(f"{type(self).__name__} takes [{', '.join(order)}], not {x.type}")
        if self.spatial == 1:
            return self._convolved_line(x, weight, bias)
        options = (self.stride, self.dilation, self.padding, self.num_groups, bias)
        layouts = ("NCHW", "FCRS") if self.permute else ("NHWC", "RSCF")
        return ops.conv2d(x, weight, *options, *layouts)

    def _convolved_line(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        (stride,), (dilation,) = _sizes(self.stride, 1), _sizes(self.dilation, 1)
        line = ops.permute(x, [0, 2, 1]) if self.permute else x
        filter_ = ops.permute(weight, [2, 1, 0]) if self.permute else weight
        result = ops.conv1d(line, filter_, stride, dilation, self.padding, self.num_groups, bias)
        return ops.permute(result, [0, 2, 1]) if self.permute else result


def _sizes(sizes: Sizes, count: int) -> tuple[int, ...]:
    return (sizes,) * count if isinstance(sizes, int) else tuple(sizes)


def _plain(sizes: Sizes) -> int | tuple[int, ...]:
    return sizes if isinstance(sizes, int) else tuple(sizes)


class _Layer(Convolution, Module[[Tensor], Tensor]):
    """A convolution whose filter is a weight."""

    def __init__(
        self,
        kernel_size: Sizes,
        in_channels: int,
        out_channels: int,
        dtype: DType = DType.float32,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        num_groups: int = 1,
        device: DeviceRef | None = None,
        has_bias: bool = False,
        permute: bool = False,
        name: str | None = None,
    ) -> None:
        channels = (in_channels, out_channels)
        options = (stride, padding, dilation, num_groups, permute)
        shape = self._configure(kernel_size, channels, *options)
        prefix = f"{name}." if name else ""
        self.filter = Weight(f"{prefix}weight", dtype, shape, device)
        bias = Weight(f"{prefix}bias", dtype, (out_channels,), device)
        self.bias = bias if has_bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, ..., channels]``, or channels first, to one element per window."""
        return self._convolved(x, self.filter, self.bias)


class Conv1d(_Layer):
    """A convolution of ``[batch, length, channels]``; options as for :class:`Conv2d`."""

    spatial = 1


class Conv2d(_Layer):
    """A convolution of ``[batch, height, width, channels]``.

    Args:
        kernel_size: Elements of a window along each spatial dimension, or one number for all, as
            below.
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        dtype: The element type of filter and bias; inputs have it too.
        stride: Elements from one window to the next.
        padding: Zeros around: one number, one for each dimension, or two for each.
        dilation: Elements from one place of a window to the next.
        num_groups: Parts of the channels, each convolved for itself.
        device: Where the weights live.
        has_bias: Whether there is a bias.
        permute: Whether channels come first, as in PyTorch.
        name: What the names of the weights start with.

    Raises:
        ValueError: If a size is not positive, or the groups do not divide the channels.

    Attributes:
        filter: ``[*kernel_size, in_channels / num_groups, out_channels]``, or with ``permute``
            ``[out_channels, in_channels / num_groups, *kernel_size]``; a state has it as
            ``weight``.
        bias: ``[out_channels]``, or None.
    """

    spatial = 2


Conv1D = Conv1d  # the reference API's spelling
