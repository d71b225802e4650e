"""A layer of an encoder that normalises before attention and before the MLP."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.encoder_attention import EncoderAttention
from maxtool.architectures.mlp import MLPS
from maxtool.architectures.rotary_angles import Angles
from maxtool.dtype import DType
from maxtool.graph import Tensor, Weight
from maxtool.nn import LayerNorm, Module


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """Sizes and options of such a layer."""

    hidden_size: int
    intermediate_size: int
    n_heads: int
    head_dim: int
    norm_eps: float
    hidden_act: str
    mlp: str = "plain"
    qkv_bias: bool = True
    k_bias: bool = True  # whether keys have biases where queries and values do
    o_bias: bool = True
    mlp_bias: bool = True
    norm_bias: bool = True
    attn_norm: bool = True  # whether attention has a norm before it
    causal: bool = False  # whether a token sees only those up to itself
    layer_scale: bool = False  # whether each channel of what is added has a factor (CaiT)


class PreNormLayer(Module[[Tensor, Tensor | None, Angles | None], Tensor]):
    """Attention and MLP, each of its normalised input, and added to it."""

    def __init__(self, sizes: LayerSizes, dtype: DType) -> None:
        hidden, inner = sizes.hidden_size, sizes.intermediate_size
        self.attn_norm = _norm(sizes) if sizes.attn_norm else None
        self.attn = EncoderAttention(
            hidden,
            sizes.n_heads,
            sizes.head_dim,
            dtype,
            qkv_bias=sizes.qkv_bias,
            k_bias=sizes.k_bias,
            o_bias=sizes.o_bias,
            causal=sizes.causal,
        )
        self.attn_scale = _factors("attn_scale", sizes)
        self.mlp_norm = _norm(sizes)
        self.mlp = MLPS[sizes.mlp](hidden, inner, sizes.hidden_act, dtype, sizes.mlp_bias)
        self.mlp_scale = _factors("mlp_scale", sizes)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, angles: Angles | None = None
    ) -> Tensor:
        """Map ``[batch, seq, hidden]`` to the same shape; ``mask`` is that of the attention."""
        seen = x if self.attn_norm is None else self.attn_norm(x)
        x = x + _scaled(self.attn(seen, mask, angles), self.attn_scale)
        return x + _scaled(self.mlp(self.mlp_norm(x)), self.mlp_scale)


def _norm(sizes: LayerSizes) -> LayerNorm:
    return LayerNorm(sizes.hidden_size, eps=sizes.norm_eps, use_bias=sizes.norm_bias)


def _factors(name: str, sizes: LayerSizes) -> Weight | None:
    """The factors of the channels, if the layer has them."""
    return Weight(name, DType.float32, (sizes.hidden_size,)) if sizes.layer_scale else None


def _scaled(x: Tensor, factors: Weight | None) -> Tensor:
    return x if factors is None else x * factors
