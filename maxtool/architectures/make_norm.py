"""The norms that architectures choose between."""

from __future__ import annotations

from typing import TypeAlias

from maxtool.nn import LayerNorm, RMSNorm

Norm: TypeAlias = "RMSNorm | LayerNorm"


def make_norm(norm_type: str, dim: int, eps: float, has_bias: bool = False) -> Norm:
    """A norm of ``norm_type``: ``rms``, which has no bias, or ``layer``."""
    return RMSNorm(dim, eps) if norm_type == "rms" else LayerNorm(dim, eps=eps, use_bias=has_bias)
