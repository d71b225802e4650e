"""Reference decoder in NumPy float64, straight from its options and weights."""

from __future__ import annotations

from collections.abc import Mapping
from math import erf
from typing import Any

import numpy as np

from maxtool.architectures import DecoderConfig

Array = np.ndarray[Any, Any]

_erf = np.vectorize(erf, otypes=[np.float64])
ACTIVATIONS = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * (1 + _erf(x / np.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: np.maximum(x, 0),
}


class Oracle:
    """A decoder over NumPy weights, by full name."""

    def __init__(self, config: DecoderConfig, weights: Mapping[str, Array]) -> None:
        self.c = config
        self.w = {name: value.astype(np.float64) for name, value in weights.items()}

    def logits(self, ids: Array) -> Array:
        """``[batch, seq, vocab]`` of ids ``[batch, seq]``."""
        return np.stack([self._sequence(row) for row in ids])

    def _sequence(self, ids: Array) -> Array:
        c = self.c
        x = self.w["embed.weight"][ids] * c.embed_scale
        if c.position == "learned":
            x = x + self.w["position.weight"][: len(ids)]
        for layer in range(c.n_layers):
            x = self._layer(layer, x)
        head = self.w["embed.weight" if c.tie_word_embeddings else "lm_head.weight"]
        logits = self._norm("norm", x) @ head.T * c.logits_scale
        return self._capped(logits, c.logits_softcap)

    def _layer(self, layer: int, x: Array) -> Array:
        c, at = self.c, f"layers.{layer}."

        def attention(y: Array) -> Array:
            return self._attention(layer, y)

        def mlp(y: Array) -> Array:
            return self._experts(at, y) if self._has_experts(layer) else self._mlp(at, y)

        def norm(name: str, y: Array) -> Array:
            return self._norm(at + name, y)

        if c.block == "parallel":
            mixed = attention(norm("attn_norm", x)), mlp(norm("mlp_norm", x))
            return x + c.residual_scale * mixed[0] + c.residual_scale * mixed[1]
        if c.block == "parallel_shared":
            normed = norm("attn_norm", x)
            return x + c.residual_scale * (attention(normed) + mlp(normed))
        for part, name in ((attention, "attn"), (mlp, "mlp")):
            y = norm(f"{name}_norm", x) if c.block in ("pre", "sandwich") else x
            y = part(y)
            y = norm(f"{name}_post_norm", y) if c.block in ("post", "sandwich") else y
            x = x + c.residual_scale * y
        return x

    def _has_experts(self, layer: int) -> bool:
        return bool(self.c.n_experts) and (self.c.expert_layers or (True,) * 99)[layer]

    def _norm(self, name: str, x: Array, kind: str | None = None) -> Array:
        kind = kind or self.c.norm
        centred = x - x.mean(-1, keepdims=True) if kind == "layer" else x
        scale = np.sqrt((centred**2).mean(-1, keepdims=True) + self.c.norm_eps)
        return centred / scale * self.w[f"{name}.weight"] + self.w.get(f"{name}.bias", 0)

    def _linear(self, name: str, x: Array) -> Array:
        return x @ self.w[f"{name}.weight"].T + self.w.get(f"{name}.bias", 0)

    def _capped(self, x: Array, cap: float | None) -> Array:
        return x if cap is None else cap * np.tanh(x / cap)

    def _mlp(self, at: str, x: Array) -> Array:
        act = ACTIVATIONS[self.c.hidden_act]
        up = self._linear(f"{at}mlp.up", x)
        inner = act(self._linear(f"{at}mlp.gate", x)) * up if self.c.mlp == "gated" else act(up)
        return self._linear(f"{at}mlp.down", inner)

    def _experts(self, at: str, x: Array) -> Array:
        gate, up, down = (self.w[f"{at}mlp.{name}.weight"] for name in ("gate", "up", "down"))
        out = np.zeros_like(x)
        for token, row in enumerate(x):
            scores = self.w[f"{at}mlp.router.weight"] @ row
            share = np.exp(scores - scores.max())
            share /= share.sum()
            chosen = np.argsort(-share, kind="stable")[: self.c.n_experts_used]
            total = share[chosen].sum() if self.c.norm_topk else 1.0
            for one in chosen:
                inner = ACTIVATIONS[self.c.hidden_act](gate[one] @ row) * (up[one] @ row)
                out[token] += share[one] / total * (down[one] @ inner)
        return out

    def _attention(self, layer: int, x: Array) -> Array:
        c, at = self.c, f"layers.{layer}.attn."
        q, k, v = (self._linear(at + name, x) for name in "qkv")
        if c.qk_norm == "full":
            q, k = self._norm(at + "q_norm", q, "rms"), self._norm(at + "k_norm", k, "rms")
        q, k, v = (one.reshape(len(x), -1, c.head_dim) for one in (q, k, v))
        if c.qk_norm == "head":
            q, k = self._norm(at + "q_norm", q, "rms"), self._norm(at + "k_norm", k, "rms")
        if c.position == "rope" and (c.rope_layers or (True,) * 99)[layer]:
            q, k = self._rotated(layer, q), self._rotated(layer, k)
        k, v = (np.repeat(one, c.n_heads // c.n_kv_heads, axis=1) for one in (k, v))
        scale = c.head_dim**-0.5 if c.attention_scale is None else c.attention_scale
        scores = self._capped(np.einsum("qhd,khd->hqk", q, k) * scale, c.attention_softcap)
        scores = np.where(self._seen(layer, len(x)), scores, -np.inf)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        return self._linear(at + "o", np.einsum("hqk,khd->qhd", share, v).reshape(len(x), -1))

    def _is_sliding(self, layer: int) -> bool:
        return bool(self.c.sliding_window) and (self.c.sliding_layers or (True,) * 99)[layer]

    def _seen(self, layer: int, length: int) -> Array:
        back = np.arange(length)[:, None] - np.arange(length)
        window = self.c.sliding_window if self._is_sliding(layer) else length
        return (back >= 0) & (back < window)

    def _rotated(self, layer: int, x: Array) -> Array:
        c = self.c
        dim = c.rotary_dim or c.head_dim
        local = c.rope_local_theta is not None and self._is_sliding(layer)
        theta = c.rope_local_theta if local else c.rope_theta
        factor = c.rope_factor or 1.0 if c.rope_scaling == "linear" and not local else 1.0
        angles = np.arange(len(x))[:, None] * theta ** (-np.arange(0, dim, 2) / dim) / factor
        turned = (x[..., : dim // 2] + 1j * x[..., dim // 2 : dim]) * np.exp(1j * angles[:, None])
        return np.concatenate([turned.real, turned.imag, x[..., dim:]], axis=-1)
