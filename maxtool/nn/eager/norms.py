"""Normalisation layers."""

from __future__ import annotations

from maxtool.graph import Dim, DimLike, Tensor, ops
from maxtool.nn.eager.module import Module
from maxtool.nn.eager.rendering import Parts


class _RowNorm(Module[[Tensor], Tensor]):
    """A norm over the last dimension."""

    weight: Tensor
    eps: float

    @property
    def dim(self) -> Dim:
        """The width of the last dimension."""
        return self.weight.shape[0]

    def __rich_repr__(self) -> Parts:
        yield "dim", self.dim
        yield "eps", self.eps


class LayerNorm(_RowNorm):
    """Mean 0 and variance 1 over the last dimension, then ``weight`` and ``bias``.

    Args:
        dim: Its width.
        eps: Added to the variance.

    Attributes:
        weight: ``[dim]``, ones at first.
        bias: ``[dim]``, zeros at first.
    """

    bias: Tensor

    def __init__(self, dim: DimLike, eps: float = 1e-5) -> None:
        self.weight = Tensor.ones([dim])
        self.bias = Tensor.zeros([dim])
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., dim]`` to the same shape."""
        return ops.layer_norm(x, self.weight, self.bias, self.eps)


class RMSNorm(_RowNorm):
    """Mean square 1 over the last dimension, then ``weight``.

    Args:
        dim: Its width.
        eps: Added to the mean of squares.

    Attributes:
        weight: ``[dim]``, ones at first.
    """

    def __init__(self, dim: DimLike, eps: float = 1e-6) -> None:
        self.weight = Tensor.ones([dim])
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., dim]`` to the same shape."""
        return ops.rms_norm(x, self.weight, self.eps)


class GroupNorm(Module[[Tensor], Tensor]):
    """Mean 0 and variance 1 within each group of channels, then a factor and an offset for each.

    Options and errors are those of :class:`maxtool.nn.GroupNorm`.

    Attributes:
        weight: ``[num_channels]``, ones at first; None without ``affine``.
        bias: ``[num_channels]``, zeros at first; likewise.
    """

    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"{num_channels} channels do not make {num_groups} groups")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = Tensor.ones([num_channels]) if affine else None
        self.bias = Tensor.zeros([num_channels]) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, num_channels, ...]`` to the same shape."""
        return ops.group_norm(x, self.weight, self.bias, self.num_groups, self.eps)

    def __rich_repr__(self) -> Parts:
        yield "num_groups", self.num_groups
        yield "num_channels", self.num_channels
        yield "eps", self.eps
        yield "affine", self.weight is not None, True
