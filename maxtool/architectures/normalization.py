"""Norms of a decoder: of the residual stream, and of the heads of queries and keys."""

from __future__ import annotations

from typing import TypeAlias

from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.dtype import DType
from maxtool.graph import Tensor, Weight, ops
from maxtool.nn import LayerNorm, Module, RMSNorm, parallel

Norm: TypeAlias = Module[[Tensor], Tensor]


class PlainNorm(Module[[Tensor], Tensor]):
    """A norm of ``norm_type``, ``rms`` or ``layer``, that has neither weight nor bias."""

    def __init__(self, norm_type: str, dim: int, eps: float) -> None:
        self.norm_type, self.dim, self.eps = norm_type, dim, eps

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., dim]`` to the same shape."""
        if self.norm_type == "layer":
            return ops.layer_norm(x, None, None, self.eps)
        ones = Tensor.full([self.dim], 1.0, dtype=DType.float32, device=x.device)
        return ops.rms_norm(x, ones, self.eps)


class EachHeadNorm(PlainNorm):
    """A norm of each head with a weight of its own, and a bias if there is one.

    Attributes:
        weight: ``[heads, dim]``, float32.
        bias: Likewise, or None.
    """

    def __init__(
        self, norm_type: str, heads: int, dim: int, eps: float, has_bias: bool = False
    ) -> None:
        super().__init__(norm_type, dim, eps)
        self.weight = Weight("weight", DType.float32, (heads, dim))
        self.bias = Weight("bias", DType.float32, (heads, dim)) if has_bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., heads, dim]`` to the same shape."""
        scaled = super().forward(x) * parallel.local(self.weight, x.device)
        return scaled if self.bias is None else scaled + parallel.local(self.bias, x.device)


def make_norm(norm_type: str, dim: int, eps: float, has_bias: bool = False) -> Norm:
    """A norm of ``norm_type``: ``rms``, which has no bias, or ``layer``."""
    return RMSNorm(dim, eps) if norm_type == "rms" else LayerNorm(dim, eps=eps, use_bias=has_bias)


def stream_norm(config: DecoderConfig) -> Norm:
    """A norm of the residual stream."""
    width, eps = config.hidden_size, config.norm_eps
    if config.plain_norms:
        return PlainNorm(config.norm, width, eps)
    return make_norm(config.norm, width, eps, config.norm_bias)


def head_norm(config: DecoderConfig, heads: int, dim: int) -> Norm:
    """A norm of queries or keys, of so many heads as wide as ``dim``."""
    kind, eps, has_bias = config.qk_norm_type, config.norm_eps, config.qk_norm_bias
    if config.qk_norm == "each_head":
        return EachHeadNorm(kind, heads, dim, eps, has_bias)
    if config.qk_norm == "plain":
        return PlainNorm(kind, dim, eps)
    width = dim * (heads if config.qk_norm == "full" else 1)
    return make_norm(kind, width, eps, has_bias)


def applied(part: Module[[Tensor], Tensor] | None, x: Tensor) -> Tensor:
    """``x`` behind a norm, or another part, that a model may lack."""
    return x if part is None else part(x)
