"""One decoder layer: norms, attention and MLP in the order that its block has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxtool.parity.decoder.attention import attend, split_heads
from maxtool.parity.decoder.mlp import choose, feed
from maxtool.parity.decoder.rope import rotate
from maxtool.parity.decoder.settings import Settings
from maxtool.parity.decoder.tensors import Tensors

Array = NDArray[np.float64]
Tables = tuple[Array, Array] | None


@dataclass(frozen=True, slots=True)
class Layer:
    """The steps of one layer, on activations [batch, seq, hidden].

    Attributes:
        settings: The model's.
        tensors: Where its weights are read, one at a time.
        index: Which layer it is.
        tables: Cosines and sines for its queries and keys, None if they are not rotated.
    """

    settings: Settings
    tensors: Tensors
    index: int
    tables: Tables

    def __call__(self, x: Array) -> Array:
        """What the layer makes of its input."""
        return BLOCKS[self.settings.block](self, x)

    def norm(self, role: str, x: Array) -> Array:
        """``x`` normed over its last axis with the weights of a role."""
        return normed(self.settings, self.tensors, role, x, self.index)

    def attention(self, x: Array) -> Array:
        """What attention adds to the residual."""
        settings = self.settings
        q, k, v = self._queries_keys_values(x)
        if self.tables is not None:
            q, k = (rotate(y, self.tables, pairs=settings.pairs) for y in (q, k))
        mixed = attend(
            q,
            k,
            v,
            scale=settings.attention_scale,
            window=settings.windows[self.index],
            cap=settings.attention_cap,
        )
        return self._linear("o", mixed) * settings.residual_scale

    def mlp(self, x: Array) -> Array:
        """What the MLP adds to the residual."""
        settings = self.settings
        if settings.has_experts(self.index):
            return self._experts(x) * settings.residual_scale
        fed = feed(self._linear, settings.activation, x, gated=settings.gated)
        return fed * settings.residual_scale

    def _queries_keys_values(self, x: Array) -> tuple[Array, Array, Array]:
        """Each [batch, its heads, seq, head_dim]."""
        head_dim, kind = self.settings.sizes.head_dim, self.settings.qk_norm
        q, k, v = (self._linear(role, x) for role in ("q", "k", "v"))
        if kind == "full":
            q, k = self.norm("q_norm", q), self.norm("k_norm", k)
        q, k, v = (split_heads(y, head_dim) for y in (q, k, v))
        if kind == "head":
            q, k = self.norm("q_norm", q), self.norm("k_norm", k)
        return q, k, v

    def _linear(self, role: str, x: Array) -> Array:
        product = x @ self.tensors.read(role, layer=self.index).T
        if role in self.settings.biased:
            product += self.tensors.read(role, "bias", self.index)
        return product

    def _experts(self, x: Array) -> Array:
        """Every expert that any token goes through, on the tokens that do."""
        experts = self.settings.experts
        if experts is None:
            return x
        weights = choose(experts, x @ self.tensors.read("router", layer=self.index).T)
        mixed = np.zeros_like(x)
        for expert in range(experts.count):
            chosen = weights[..., expert] > 0
            if chosen.any():
                share = weights[..., expert][chosen][:, None]
                mixed[chosen] += share * self._expert(expert, x[chosen])
        return mixed

    def _expert(self, expert: int, x: Array) -> Array:
        def linear(role: str, inputs: Array) -> Array:
            return inputs @ self.tensors.read(f"expert_{role}", layer=self.index, part=expert).T

        return feed(linear, self.settings.activation, x, gated=True)


def normed(
    settings: Settings, tensors: Tensors, role: str, x: Array, layer: int | None = None
) -> Array:
    """``x`` over its root mean square (arXiv:1910.07467), or standardized (arXiv:1607.06450)."""
    weight = tensors.read(role, layer=layer) + settings.norm_offset
    if settings.norm == "rms" or role in ("q_norm", "k_norm"):
        size = np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + settings.eps)
        divided: Array = x / size * weight
        return divided
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt(np.mean(np.square(centred), axis=-1, keepdims=True) + settings.eps)
    standardized: Array = centred / deviation * weight + tensors.read(role, "bias", layer)
    return standardized


def _pre(layer: Layer, x: Array) -> Array:
    x = x + layer.attention(layer.norm("attn_norm", x))
    return x + layer.mlp(layer.norm("mlp_norm", x))


def _post(layer: Layer, x: Array) -> Array:
    x = x + layer.norm("attn_post_norm", layer.attention(x))
    return x + layer.norm("mlp_post_norm", layer.mlp(x))


def _sandwich(layer: Layer, x: Array) -> Array:
    x = x + layer.norm("attn_post_norm", layer.attention(layer.norm("attn_norm", x)))
    return x + layer.norm("mlp_post_norm", layer.mlp(layer.norm("mlp_norm", x)))


def _parallel(layer: Layer, x: Array) -> Array:
    attention = layer.attention(layer.norm("attn_norm", x))
    return x + attention + layer.mlp(layer.norm("mlp_norm", x))


def _parallel_shared(layer: Layer, x: Array) -> Array:
    y = layer.norm("attn_norm", x)
    return x + layer.attention(y) + layer.mlp(y)


BLOCKS: Mapping[str, Callable[[Layer, Array], Array]] = {
    "pre": _pre,
    "post": _post,
    "sandwich": _sandwich,
    "parallel": _parallel,
    "parallel_shared": _parallel_shared,
}
