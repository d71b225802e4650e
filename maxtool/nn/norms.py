"""Normalisation layers of the graph style."""

from __future__ import annotations

from collections.abc import Sequence

from maxtool.dtype import DType
from maxtool.graph import DeviceRef, Tensor, Weight, ops
from maxtool.nn.module import Module


class LayerNorm(Module[[Tensor], Tensor]):
    """Mean 0 and variance 1 over the last dimension, then a weight and, if it has one, a bias.

    Args:
        dims: The width of that dimension.
        devices: Where the weights live: one device.
        dtype: Their element type.
        eps: Added to the variance.
        use_bias: Whether there is a bias.

    Raises:
        ValueError: If several devices are given.

    Attributes:
        weight: ``[dims]``.
        bias: Likewise, or None.
    """

    def __init__(
        self,
        dims: int,
        devices: Sequence[DeviceRef] | None = None,
        dtype: DType = DType.float32,
        eps: float = 1e-5,
        use_bias: bool = True,
    ) -> None:
        if len(devices or ()) > 1:
            raise ValueError("LayerNorm is on one device")
        device = devices[0] if devices else None
        self.weight = Weight("weight", dtype, (dims,), device)
        self.bias = Weight("bias", dtype, (dims,), device) if use_bias else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., dims]`` to the same shape."""
        return ops.layer_norm(x, self.weight, self.bias, self.eps)


class GroupNorm(Module[[Tensor], Tensor]):
    """Mean 0 and variance 1 within each group of channels, then a factor and an offset for each.

    Args:
        num_groups: How many groups the channels make.
        num_channels: How many channels there are.
        eps: Added to the variance of a group.
        affine: Whether there are factors and offsets.
        device: Where they live.

    Raises:
        ValueError: If the channels cannot be divided into so many groups.

    Attributes:
        weight: ``[num_channels]``, float32; None without ``affine``.
        bias: Likewise.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: DeviceRef | None = None,
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"{num_channels} channels do not make {num_groups} groups")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        shape = (num_channels,)
        self.weight = Weight("weight", DType.float32, shape, device) if affine else None
        self.bias = Weight("bias", DType.float32, shape, device) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, num_channels, ...]`` to the same shape."""
        return ops.group_norm(x, self.weight, self.bias, self.num_groups, self.eps)
