"""Normalisation layers."""

from __future__ import annotations

from typing import Any

from maxtool.graph import Dim, DimLike, Tensor, ops
from maxtool.nn.eager.module import Module


class LayerNorm(Module[[Tensor], Tensor]):
    """Mean 0 and variance 1 over the last dimension, then ``weight`` and ``bias``.

    Args:
        dim: Its width.
        eps: Added to the variance.

    Attributes:
        weight: ``[dim]``, ones at first.
        bias: ``[dim]``, zeros at first.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, dim: DimLike, eps: float = 1e-5) -> None:
        self.weight = Tensor.ones([dim])
        self.bias = Tensor.zeros([dim])
        self.eps = eps

    @property
    def dim(self) -> Dim:
        """The width of the last dimension."""
        return self.weight.shape[0]

    def forward(self, x: Tensor) -> Tensor:
        """From ``[..., dim]`` to the same shape."""
        return ops.layer_norm(x, self.weight, self.bias, self.eps)

    def _arguments(self) -> dict[str, Any]:
        return {"dim": self.dim, "eps": self.eps}


class RMSNorm(Module[[Tensor], Tensor]):
    """Mean square 1 over the last dimension, then ``weight``.

    Args:
        dim: Its width.
        eps: Added to the mean of squares.

    Attributes:
        weight: ``[dim]``, ones at first.
    """

    weight: Tensor

    def __init__(self, dim: DimLike, eps: float = 1e-6) -> None:
        self.weight = Tensor.ones([dim])
        self.eps = eps

    @property
    def dim(self) -> Dim:
        """The width of the last dimension."""
        return self.weight.shape[0]

    def forward(self, x: Tensor) -> Tensor:
        """From ``[..., dim]`` to the same shape."""
        return ops.rms_norm(x, self.weight, self.eps)

    def _arguments(self) -> dict[str, Any]:
        return {"dim": self.dim, "eps": self.eps}
