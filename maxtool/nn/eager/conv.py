"""Convolution layers with random filters."""

from __future__ import annotations

from typing import Literal

from maxtool.dtype import DType
from maxtool.graph import Tensor, random
from maxtool.graph.device import Device
from maxtool.nn import conv
from maxtool.nn.conv import Sizes
from maxtool.nn.eager.module import Module
from maxtool.nn.eager.rendering import Parts

DEFAULTS = {"stride": 1, "padding": 0, "dilation": 1, "num_groups": 1, "permute": False}


class _Layer(conv.Convolution, Module[[Tensor], Tensor]):
    """A convolution whose filter is a tensor."""

    weight: Tensor
    bias: Tensor | Literal[0]

    def __init__(
        self,
        kernel_size: Sizes,
        in_channels: int,
        out_channels: int,
        dtype: DType | None = None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        num_groups: int = 1,
        device: Device | None = None,
        has_bias: bool = False,
        permute: bool = False,
        name: str | None = None,
    ) -> None:
        channels = (in_channels, out_channels)
        options = (stride, padding, dilation, num_groups, permute)
        shape = self._configure(kernel_size, channels, *options)
        self.name = name
        self.weight = random.normal(shape, dtype=dtype, device=device)
        bias = random.normal([out_channels], dtype=dtype, device=device) if has_bias else None
        self.bias = 0 if bias is None else bias

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, ..., channels]``, or channels first, to one element per window."""
        return self._convolved(x, self.weight, self.bias if isinstance(self.bias, Tensor) else None)

    def __rich_repr__(self) -> Parts:
        for name in ("kernel_size", "in_channels", "out_channels"):
            yield name, getattr(self, name)
        for name, default in DEFAULTS.items():
            yield name, getattr(self, name), default
        yield "has_bias", isinstance(self.bias, Tensor), False


class Conv1d(_Layer):
    """A convolution of ``[batch, length, channels]``; options as for :class:`Conv2d`."""

    spatial = 1


class Conv2d(_Layer):
    """A convolution of ``[batch, height, width, channels]``.

    Options and errors are those of :class:`maxtool.nn.Conv2d`; ``name`` is used for nothing.

    Attributes:
        weight: ``[*kernel_size, in_channels / num_groups, out_channels]``, or with ``permute``
            ``[out_channels, in_channels / num_groups, *kernel_size]``, drawn from the standard
            normal distribution.
        bias: ``[out_channels]``, likewise, or 0.
    """

    spatial = 2
