"""Heads of attention without a cache, as the configurations of their models ask for them."""

from __future__ import annotations

from typing import TypedDict

from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.encoder_config import EncoderConfig


class HeadOptions(TypedDict):
    """Arguments of heads of attention that configurations say."""

    hidden: int
    heads: int
    head_dim: int
    qkv_bias: bool
    o_bias: bool
    scale: float | None


def head_options(config: DecoderConfig | EncoderConfig) -> HeadOptions:
    """The heads that a configuration asks for."""
    return {
        "hidden": config.hidden_size,
        "heads": config.n_heads,
        "head_dim": config.head_dim,
        "qkv_bias": config.qkv_bias,
        "o_bias": config.o_bias,
        "scale": config.score_scale,
    }
