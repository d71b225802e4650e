"""The norms that architectures choose between."""

from __future__ import annotations

from typing import TypeAlias

from maxtool.dtype import DType
from maxtool.graph import Tensor, Weight, ops
from maxtool.nn import Module, RMSNorm


class LayerNorm(Module[[Tensor], Tensor]):
    """Mean 0 and variance 1 over the last dimension, then a weight and, if it has one, a bias.

    Args:
        dim: Its width.
        eps: Added to the variance.
        has_bias: Whether there is a bias.

    Attributes:
        weight: ``[dim]``, float32.
        bias: Likewise, or None.
    """

    def __init__(self, dim: int, eps: float = 1e-5, has_bias: bool = True) -> None:
        self.weight = Weight("weight", DType.float32, (dim,))
        self.bias = Weight("bias", DType.float32, (dim,)) if has_bias else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """From ``[..., dim]`` to the same shape."""
        return ops.layer_norm(x, self.weight, self.bias, self.eps)


Norm: TypeAlias = "RMSNorm | LayerNorm"


def make_norm(kind: str, dim: int, eps: float, has_bias: bool = False) -> Norm:
    """A norm of ``kind``: ``rms``, which has no bias, or ``layer``."""
    return RMSNorm(dim, eps) if kind == "rms" else LayerNorm(dim, eps, has_bias)
