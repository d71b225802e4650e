"""Reference decoder in NumPy float64, straight from its options and weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import erf
from statistics import NormalDist
from typing import Any

import numpy as np

from maxtool.architectures import DecoderConfig

Array = np.ndarray[Any, Any]

_erf = np.vectorize(erf, otypes=[np.float64])


def _logistic(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(0, x))


def _gelu(x: Array) -> Array:
    return np.asarray(x * 0.5 * (1 + _erf(x / np.sqrt(2))))


ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "silu": lambda x: x * _logistic(x),
    "gelu": _gelu,
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "quick_gelu": lambda x: x * _logistic(1.702 * x),
    "tanh": np.tanh,
    "sigmoid": _logistic,
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x < 0, x / 100, x),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "gelu_10": lambda x: np.clip(_gelu(x), -10, 10),
    "laplace": lambda x: (1 + _erf((x - 0.707107) / (0.282095 * np.sqrt(2)))) / 2,
    "sqrtsoftplus": lambda x: np.sqrt(_softplus(x)),
    "linear": lambda x: x,
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
        x = x if c.embed_size in (None, c.hidden_size) else self._linear("project_in", x)
        x = self._norm("embed_norm", x) if c.embed_norm else x
        if c.position == "learned":
            x = x + self.w["position.weight"][c.position_offset :][: len(ids)]
        if c.position == "sinusoidal":
            x = x + np.stack([self._waves(c.position_offset + place) for place in range(len(ids))])
        vectors = self._vectors(ids, x) if c.layer_embed_size else None
        self._kept: dict[int, tuple[Array, Array]] = {}
        streams = self._spread(x) if c.streams else None
        for layer in range(c.n_layers):
            if streams is not None:
                own = None if vectors is None else vectors[:, layer]
                streams = self._streamed(layer, streams, own)
                continue
            x = self._layer(layer, x)
            if vectors is not None:
                x = x + self._of_vector(f"layers.{layer}.input.", x, vectors[:, layer])
            x = x * self.w.get(f"layers.{layer}.scale", 1)
        head = self.w["embed.weight" if c.tie_word_embeddings else "lm_head.weight"]
        x = x if streams is None else self._merged(streams)
        x = self._norm("norm", x) if c.final_norm else x
        x = x if c.embed_size in (None, c.hidden_size) else self._linear("project_out", x)
        logits = x @ head.T + self.w.get("lm_head.bias", 0)
        logits = logits * c.logits_scale
        return self._capped(logits, c.logits_softcap)

    def _waves(self, number: int) -> Array:
        """The vector of sines and cosines of that number."""
        width, half = self.c.hidden_size, self.c.hidden_size // 2
        angles = number * np.exp(-np.log(1e4) * np.arange(half) / (half - 1))
        waves = np.concatenate([np.sin(angles), np.cos(angles), np.zeros(width - 2 * half)])
        return np.zeros(width) if number == self.c.position_padding else waves

    def _vectors(self, ids: Array, x: Array) -> Array:
        """The vector of each token for each layer."""
        c, width = self.c, self.c.layer_embed_size or 0
        known = np.where(ids < (c.layer_embed_rows or c.vocab_size), ids, 0)
        own = self.w["layer_embed.embed.weight"][known] * width**0.5
        shared = self._linear("layer_embed.project", x) / c.hidden_size**0.5
        own, shared = (one.reshape(len(ids), c.n_layers, width) for one in (own, shared))
        return (own + self._norm("layer_embed.norm", shared, "rms")) / 2**0.5

    def _spread(self, x: Array) -> list[Array]:
        count = self.c.streams or 1
        made = [self._linear(f"streams.spread.{n}", x) for n in range(count - 1)]
        return [x, *(self._as_long_as(x, y) for y in made)]

    def _merged(self, streams: list[Array]) -> Array:
        first, *rest = streams
        made = [self._linear(f"streams.merge.{n}", x) for n, x in enumerate(rest)]
        return np.mean([first, *(self._as_long_as(first, x) for x in made)], axis=0)

    def _as_long_as(self, wanted: Array, x: Array) -> Array:
        own = np.sqrt(np.maximum((x**2).mean(-1, keepdims=True), 1e-5))
        return x * np.sqrt((wanted**2).mean(-1, keepdims=True)) / own

    def _streamed(self, layer: int, streams: list[Array], own: Array | None) -> list[Array]:
        """The streams behind a layer, of what each was before it."""
        c, at, count = self.c, f"layers.{layer}.streams.", len(streams)

        def routed(x: Array) -> Array:
            return np.tanh(
                self._linear(at + "router", self._norm(at + "router_norm", x) / x.shape[1])
            )

        mixing = self._linear(at + "predict", routed(streams[c.active_stream]))
        mixing = mixing.reshape(-1, count, count)
        guessed = [
            x + sum(mixing[:, n, other, None] * y for other, y in enumerate(streams))
            for n, x in enumerate(streams)
        ]
        made = self._layer(layer, guessed[c.active_stream])
        shares = 1 + self._linear(at + "correct", routed(made))
        off = made - guessed[c.active_stream]
        result = [x + shares[:, n, None] * off for n, x in enumerate(guessed)]
        if own is not None:
            read = result[c.active_stream]
            read = read * self.w[at + "scale"] if c.stream_scale else read
            more = self._of_vector(f"layers.{layer}.input.", read, own)
            result = [result[0], *(x + more for x in result[1:])]
        return result

    def _of_vector(self, at: str, x: Array, own: Array) -> Array:
        inner = ACTIVATIONS[self.c.hidden_act](self._linear(at + "gate", x)) * own
        return self._norm(at + "norm", self._linear(at + "up", inner))

    def _layer(self, layer: int, x: Array) -> Array:
        c, at = self.c, f"layers.{layer}."

        def attention(y: Array) -> Array:
            kinds = {"delta": self._delta, "mamba": self._mamba, "convolution": self._convolved}
            kinds["selective"] = self._selective
            made = np.zeros_like(y)
            if c.has_attention(layer):
                made += c.attention_out_scale * self._attention(layer, y * c.attention_in_scale)
            if c.mixer_beside or not c.has_attention(layer):
                made += c.mixer_out_scale * kinds[c.mixer](at, y * c.mixer_in_scale)
            return made

        def mlp(y: Array) -> Array:
            if c.experts_beside and self._has_experts(layer):
                plain = norm("plain_post_norm", self._mlp(at, norm("mlp_norm", y)))
                return plain + norm("expert_post_norm", self._experts(at, y))
            return self._experts(at, y) if self._has_experts(layer) else self._mlp(at, y)

        def norm(name: str, y: Array) -> Array:
            return self._norm(at + name, y)

        if c.block == "single":
            part = mlp if (c.mlp_layers or ())[layer] else attention
            return x + c.residual_scale * part(norm("norm", x))
        if c.block == "parallel":
            mixed = attention(norm("attn_norm", x)), mlp(norm("mlp_norm", x))
            return x + c.residual_scale * mixed[0] + c.residual_scale * mixed[1]
        if c.block == "parallel_shared":
            normed = norm("attn_norm", x)
            return x + c.residual_scale * (attention(normed) + mlp(normed))
        if c.block == "normed":
            x = norm("attn_norm", x)
            x = norm("mlp_norm", x + c.residual_scale * attention(x))
            return x + c.residual_scale * mlp(x)
        if c.block == "after":
            x = norm("attn_norm", x + c.residual_scale * attention(x))
            return norm("mlp_norm", x + c.residual_scale * mlp(x))
        for part, name in ((attention, "attn"), (mlp, "mlp")):
            beside = name == "mlp" and c.experts_beside and self._has_experts(layer)
            y = norm(f"{name}_norm", x) if c.block in ("pre", "sandwich") and not beside else x
            first = y
            y = part(y)
            y = norm(f"{name}_post_norm", y) if c.block in ("post", "sandwich") else y
            x = x + c.residual_scale * y
            if c.laurel_rank and name == "attn":
                learned = self._linear(at + "laurel.up", self._linear(at + "laurel.down", first))
                x = (x + first + norm("laurel.norm", learned)) / 2**0.5
        return x

    def _has_experts(self, layer: int) -> bool:
        return bool(self.c.n_experts) and (self.c.expert_layers or (True,) * 99)[layer]

    def _norm(self, name: str, x: Array, kind: str | None = None) -> Array:
        kind = kind or self.c.norm
        centred = x - x.mean(-1, keepdims=True) if kind == "layer" else x
        scale = np.sqrt((centred**2).mean(-1, keepdims=True) + self.c.norm_eps)
        return centred / scale * self.w.get(f"{name}.weight", 1) + self.w.get(f"{name}.bias", 0)

    def _linear(self, name: str, x: Array) -> Array:
        return x @ self.w[f"{name}.weight"].T + self.w.get(f"{name}.bias", 0)

    def _capped(self, x: Array, cap: float | None) -> Array:
        return x if cap is None else cap * np.tanh(x / cap)

    def _mlp(self, at: str, x: Array) -> Array:
        act = self._activation(int(at.split(".")[1]))
        up, (gate, whole) = self._linear(f"{at}mlp.up", x), self.c.mlp_scales or (1, 1)
        gated = self.c.mlp == "gated"
        if gated:
            read = self._linear(f"{at}mlp.gate", x) * gate
            inner = act(self._sparse(read, int(at.split(".")[1]))) * up
        else:
            inner = act(up)
        inner = self._norm(f"{at}mlp.norm", inner, "rms") if self.c.sub_norms else inner
        return self._linear(f"{at}mlp.down", inner) * whole

    def _sparse(self, x: Array, layer: int) -> Array:
        """Gates above the quantile of a normal distribution, as far as they are above it."""
        share = (self.c.gate_sparsity or (0.0,) * 99)[layer]
        if share == 0:
            return x
        far = NormalDist().inv_cdf(share)
        return np.maximum(x - x.mean(-1, keepdims=True) - far * x.std(-1, keepdims=True), 0)

    def _activation(self, layer: int) -> Callable[[Array], Array]:
        c = self.c
        if c.hidden_act != "xielu":
            return ACTIVATIONS[c.hidden_act]
        lists = (c.xielu_alpha_p, c.xielu_alpha_n, c.xielu_beta, c.xielu_eps)
        alpha_p, alpha_n, beta, eps = ((one or ())[layer] for one in lists)

        def xielu(x: Array) -> Array:
            above = np.log1p(np.exp(alpha_p)) * x * x
            below = (np.expm1(np.minimum(x, eps)) - x) * (beta + np.log1p(np.exp(alpha_n)))
            return np.where(x > 0, above, below) + beta * x

        return xielu

    def _experts(self, at: str, x: Array) -> Array:
        out, own = np.zeros_like(x), "experts" if self.c.experts_beside else "mlp"
        read = self._norm(f"{at}{own}.router_norm", x, "rms") if self.c.router_norm else x
        x = self._norm(f"{at}{own}.norm", x) if self.c.experts_beside else x
        for token, row in enumerate(x):
            scores = self._linear(f"{at}{own}.router", read[token]) * self.c.router_scale
            share, chosen = self._routed(self._capped(scores, self.c.router_softcap), at)
            size = np.linalg.norm(share[chosen], self.c.topk_norm_order)
            total = size + self.c.expert_sum_eps if self.c.norm_topk else 1.0
            for one in chosen:
                weight = self.c.expert_scale * share[one] / total
                weight *= self.w[f"{at}{own}.factors"][one] if self.c.expert_factors else 1
                before, after = (weight, 1.0) if self.c.expert_input_scaled else (1.0, weight)
                inside = self._inside(at, one, self._narrow(at, row) * before)
                made = self._widened(at, after * self._expert(at, "down", one, inside))
                out[token] += made
            out[token] += self.w.get(f"{at}mlp.widen.bias", 0)
        if not self.c.shared_expert_size:
            return out
        return (out + self._shared(at, x)) / (2 if self.c.shared_expert_mean else 1)

    def _narrow(self, at: str, x: Array) -> Array:
        return self._linear(f"{at}mlp.narrow", x) if self.c.expert_latent_size else x

    def _widened(self, at: str, x: Array) -> Array:
        return self.w[f"{at}mlp.widen.weight"] @ x if self.c.expert_latent_size else x

    def _inside(self, at: str, one: int, x: Array) -> Array:
        up = self._expert(at, "up", one, x)
        if self.c.mlp == "plain":
            return ACTIVATIONS[self.c.hidden_act](up)
        return self._gated(self._expert(at, "gate", one, x), up)

    def _expert(self, at: str, name: str, one: int, x: Array) -> Array:
        at += "experts" if self.c.experts_beside else "mlp"
        bias = self.w.get(f"{at}.{name}.bias")
        return self.w[f"{at}.{name}.weight"][one] @ x + (0 if bias is None else bias[one])

    def _gated(self, gate: Array, up: Array) -> Array:
        limit, alpha = self.c.swiglu_limit, self.c.swiglu_alpha
        if limit is None or alpha is None:
            return ACTIVATIONS[self.c.hidden_act](gate) * up
        gate = np.minimum(gate, limit)
        return (np.clip(up, -limit, limit) + 1) * gate / (1 + np.exp(-alpha * gate))

    def _shared(self, at: str, x: Array) -> Array:
        at += "mlp.shared."
        act = ACTIVATIONS[self.c.hidden_act]
        up = self._linear(f"{at}mlp.up", x)
        inner = act(self._linear(f"{at}mlp.gate", x)) * up if self.c.mlp == "gated" else act(up)
        result = self._linear(f"{at}mlp.down", inner)
        if self.c.shared_expert_gate:
            result = result / (1 + np.exp(-self._linear(f"{at}share", x)))
        return result

    def _routed(self, scores: Array, at: str) -> tuple[Array, Array]:
        """The shares of all experts, and the numbers of those that are used."""
        c = self.c
        share = np.exp(scores - scores.max())
        by_itself = c.expert_scores in ("sigmoid", "sigmoid_of_chosen")
        share = 1 / (1 + np.exp(-scores)) if by_itself else share / share.sum()
        if c.expert_scores == "sparsemixer":
            share = np.array([self._sparsemixer(scores, one) for one in range(len(scores))])
            return share, np.argsort(-scores, kind="stable")[: c.n_experts_used]
        choice = share + (self.w[f"{at}mlp.correction"] if c.expert_correction else 0)
        if c.expert_groups > 1:
            groups = choice.reshape(c.expert_groups, -1)
            most = np.sort(groups)[:, -c.expert_group_best :].sum(1)
            best = np.argsort(-most, kind="stable")
            groups[best[c.expert_groups_used :]] = -np.inf
            choice = groups.reshape(-1)
        return share, np.argsort(-choice, kind="stable")[: c.n_experts_used]

    def _sparsemixer(self, scores: Array, one: int) -> float:
        """The share of an expert, if all that are better are chosen before it."""
        order = np.argsort(-scores, kind="stable").tolist()
        rest = scores[order[order.index(one) :]]
        scale = np.maximum(np.abs(rest), rest[0])
        near = rest[(rest[0] - rest) <= 2 * self.c.expert_jitter * scale]
        return float(1 / np.exp(near - rest[0]).sum())

    def _attention(self, layer: int, x: Array) -> Array:
        c, at = self.c, f"layers.{layer}.attn."
        q, k, v = self._heads(layer, x) if c.latent_size is None else self._of_latents(layer, x)
        self._kept[layer] = k, v
        if c.temperature is not None and c.temperature_context is not None:
            places = np.arange(len(x)) + c.temperature_offset
            factors = 1 + c.temperature * np.log(1 + places // c.temperature_context)
            spared = c.temperature_unrotated_only and self._is_rotated(layer)
            q = q if spared else q * factors[:, None, None]
        k, v = (np.repeat(one, q.shape[1] // one.shape[1], axis=1) for one in (k, v))
        scale = self._head_dim(layer) ** -0.5 if c.attention_scale is None else c.attention_scale
        scores = np.einsum("qhd,khd->hqk", q, k) * scale
        if c.position == "alibi":
            back = np.arange(len(x)) - np.arange(len(x))[:, None]
            scores = scores + self._slopes()[:, None, None] * back
        if c.position == "relative":
            table = self.w[f"relative.{layer if c.relative_each else 0}.weight"]
            back = np.maximum(np.arange(len(x))[:, None] - np.arange(len(x)), 0)
            buckets = np.minimum(np.vectorize(self._bucket)(back), len(table) - 1)
            scores = scores + table[buckets].transpose(2, 0, 1)
        scores = self._capped(scores, c.attention_softcap)
        scores = np.where(self._seen(layer, len(x)), scores, -np.inf)
        top = scores.max(-1, keepdims=True)
        share = np.exp(scores - top)
        total = share.sum(-1, keepdims=True)
        if c.attention_sinks and (c.sink_layers or (True,) * 99)[layer]:
            total = total + np.exp(self.w[at + "sinks"][:, None, None] - top)
        share /= total
        mixed = np.einsum("hqk,khd->qhd", share, v).reshape(len(x), -1)
        if c.attention_gate:
            gate = self._linear(at + "gate", x)
            by_act = {"sigmoid": 1 / (1 + np.exp(-gate)), "softplus": np.log1p(np.exp(gate))}
            gate = by_act[c.attention_gate_act]
            mixed = mixed * np.repeat(gate, mixed.shape[1] // gate.shape[1], axis=1)
        mixed = self._norm(at + "norm", mixed, "rms") if c.sub_norms else mixed
        return self._linear(at + "o", mixed)

    def _heads(self, layer: int, x: Array) -> tuple[Array, Array, Array]:
        """Queries, keys and values, normalised and rotated."""
        c, at = self.c, f"layers.{layer}.attn."
        first = c.n_layers - c.kv_shared_layers
        kept: tuple[Array, Array] | None = None
        if layer >= first:
            own = self._is_sliding(layer)
            kept = self._kept[max(n for n in range(first) if self._is_sliding(n) == own)]
        has_values = (c.value_layers or (True,) * 99)[layer]
        names = ("q", "k", "v" if has_values else "k") if kept is None else "qqq"
        q, k, v = (self._linear(at + name, x) for name in names)
        k, v = k * c.key_scale, v * c.value_scale
        if c.qk_norm == "full" and (self._is_rotated(layer) or not c.qk_norm_rotated_only):
            q, k = self._head_norms(at, q, k)
        if c.qkv_clip is not None:
            q, k, v = (np.clip(one, -c.qkv_clip, c.qkv_clip) for one in (q, k, v))
        q, k = (one.reshape(len(x), -1, self._head_dim(layer)) for one in (q, k))
        v = v.reshape(len(x), -1, c.value_dim or self._head_dim(layer))
        v = v / np.sqrt((v**2).mean(-1, keepdims=True) + c.norm_eps) if c.value_norm else v
        by_head = c.qk_norm in ("head", "each_head", "plain")
        by_head &= self._is_rotated(layer) or not c.qk_norm_rotated_only
        if by_head and not c.qk_norm_after_rope:
            q, k = self._head_norms(at, q, k)
        if self._is_rotated(layer):
            q, k = self._rotated(layer, q), self._rotated(layer, k)
        if by_head and c.qk_norm_after_rope:
            q, k = self._head_norms(at, q, k)
        return (q, k, v) if kept is None else (q, *kept)

    def _head_dim(self, layer: int) -> int:
        own = self.c.local_head_dim if self._is_sliding(layer) else None
        return own or self.c.head_dim

    def _of_latents(self, layer: int, x: Array) -> tuple[Array, Array, Array]:
        """The same where keys and values are made of latents, each by itself."""
        c, at = self.c, f"layers.{layer}.attn."
        read = x if c.query_latent_size is None else self._latent(at + "q_latent", x)
        latent = self._latent(at + "latent", x)
        q_name = "q" if c.query_latent_size is None else "q_up"
        q, own = (
            self._linear(at + name, read).reshape(len(x), c.n_heads, -1)
            for name in (q_name, f"{q_name}_rope")
        )
        k = np.einsum("tr,hrd->thd", latent, self.w[at + "k_up.weight"])
        v = np.einsum("tr,hdr->thd", latent, self.w[at + "v_up.weight"])
        shared = self._linear(at + "k_rope", x)[:, None]
        if self._is_rotated(layer):
            own, shared = self._rotated(layer, own), self._rotated(layer, shared)
        shared = np.repeat(shared, c.n_heads, axis=1)
        return np.concatenate([q, own], -1), np.concatenate([k, shared], -1), v

    def _latent(self, name: str, x: Array) -> Array:
        eps = self.c.norm_eps if self.c.latent_eps is None else self.c.latent_eps
        down = self._linear(f"{name}.down", x)
        scale = np.sqrt((down**2).mean(-1, keepdims=True) + eps)
        return down / scale * self.w[f"{name}.norm.weight"]

    def _is_rotated(self, layer: int) -> bool:
        return self.c.position == "rope" and (self.c.rope_layers or (True,) * 99)[layer]

    def _bucket(self, back: int) -> int:
        """The bucket of a key so far before its query."""
        count = self.c.relative_buckets or 32
        near, farthest = count // 2, self.c.relative_distance or 128
        if back < near:
            return back
        share = np.log(back / near) / np.log(farthest / near)
        return min(near + int(share * (count - near) + 1e-6), count - 1)

    def _slopes(self) -> Array:
        """The slopes of heads: of twice as many, every second first, then those between."""
        near = 1 << (self.c.n_heads.bit_length() - 1)
        twice = 2.0 ** (-8.0 * np.arange(1, 2 * near + 1) / (2 * near))
        return np.concatenate([twice[1::2], twice[::2]])[: self.c.n_heads]

    def _convolved(self, at: str, x: Array) -> Array:
        at += "conv."
        gated = self._linear(at + "before", x) * self._linear(at + "inner", x)
        mixed = self._over_time(at + "taps", gated)
        return self._linear(at + "out", self._linear(at + "after", x) * mixed)

    def _delta(self, at: str, x: Array) -> Array:
        c, at = self.c, at + "delta."
        q, k, v = (self._taken(f"{at}{name}", x) for name in "qkv")
        q, k = (
            one.reshape(len(x), c.state_key_heads, -1).repeat(c.state_heads // c.state_key_heads, 1)
            for one in (q, k)
        )
        q, k = (one / np.sqrt((one**2).sum(-1, keepdims=True) + 1e-6) for one in (q, k))
        v = v.reshape(len(x), c.state_heads, -1)
        steps = self._linear(at + "step", self._low(at + "step_low", x, c.step_rank))
        steps = np.logaddexp(0, steps + self.w[at + "step_bias"]).reshape(len(x), c.state_heads, -1)
        decay = np.exp(self.w[at + "rate"].reshape(-1, 1) * steps)[..., None]
        beta = 1 / (1 + np.exp(-self._linear(at + "beta", x)))[:, :, None]
        held, rows = np.zeros((c.state_heads, c.state_key_dim, c.state_value_dim)), []
        for t in range(len(x)):
            held = held * decay[t]
            new = beta[t] * (v[t] - np.einsum("hkv,hk->hv", held, k[t]))
            held = held + np.einsum("hk,hv->hkv", k[t], new)
            rows.append(np.einsum("hkv,hk->hv", held, q[t]) * c.state_key_dim**-0.5)
        mixed = self._norm(at + "norm", np.stack(rows), "rms").reshape(len(x), -1)
        gate = self._linear(at + "gate", self._low(at + "gate_low", x, c.gate_rank))
        share = 1 / (1 + np.exp(-gate))
        gated = mixed * share * (gate if c.state_gate == "silu" else 1)
        return self._linear(at + "out", gated)

    def _low(self, name: str, x: Array, rank: int | None) -> Array:
        return x if rank is None else self._linear(name, x)

    def _mamba(self, at: str, x: Array) -> Array:
        c, at = self.c, at + "mamba."
        gates, *scales, steps = c.state_scales or (1,) * 5
        scaled = dict(zip("vkq", scales, strict=True))
        q, k, v = (self._taken(f"{at}{name}", x, scaled[name]) for name in "qkv")
        q, k = (
            one.reshape(len(x), c.state_key_heads, -1).repeat(c.state_heads // c.state_key_heads, 1)
            for one in (q, k)
        )
        v = v.reshape(len(x), c.state_heads, -1)
        step = np.logaddexp(0, self._linear(at + "step", x) * steps + self.w[at + "step_bias"])
        decay = np.exp(self.w[at + "rate"] * step)[:, :, None, None]
        held, rows = np.zeros((c.state_heads, c.state_key_dim, c.state_value_dim)), []
        for t in range(len(x)):
            held = held * decay[t] + np.einsum("hk,hv,h->hkv", k[t], v[t], step[t])
            read = np.einsum("hkv,hk->hv", held, q[t]) + self.w[at + "skip"][:, None] * v[t]
            rows.append(read.reshape(-1))
        gate, mixed = self._linear(at + "gate", x) * gates, np.stack(rows)

        def normed(y: Array) -> Array:
            return self._norm(at + "norm", y.reshape(len(x), c.state_key_heads, -1), "rms")

        mixed = normed(mixed).reshape(len(x), -1) if c.state_norm == "before" else mixed
        mixed = mixed * gate / (1 + np.exp(-gate))
        mixed = normed(mixed).reshape(len(x), -1) if c.state_norm == "gated" else mixed
        return self._linear(at + "out", mixed)

    def _selective(self, at: str, x: Array) -> Array:
        c, at = self.c, at + "selective."
        v = self._taken(at + "v", x)

        def made(name: str) -> Array:
            found = self._linear(at + name, v)
            if c.scan_norm == "none":
                return found
            eps = c.norm_eps if c.scan_eps is None else c.scan_eps
            found = found / np.sqrt((found**2).mean(-1, keepdims=True) + eps)
            return found * self.w.get(f"{at}{name}_norm.weight", 1)

        q, k, step = made("q"), made("k"), np.logaddexp(0, self._linear(at + "step", made("low")))
        held, rows = np.zeros((c.state_key_dim, c.state_value_dim)), []
        for t in range(len(x)):
            held = held * np.exp(step[t] * self.w[at + "rate"]) + np.outer(k[t], step[t] * v[t])
            rows.append(q[t] @ held + self.w[at + "skip"] * v[t])
        gate = self._linear(at + "gate", x)
        return self._linear(at + "out", np.stack(rows) * gate / (1 + np.exp(-gate)))

    def _taken(self, name: str, x: Array, scale: float = 1.0) -> Array:
        """A projection behind its convolution and the activation."""
        act = ACTIVATIONS[self.c.state_act or self.c.hidden_act]
        return act(self._over_time(f"{name}_conv", self._linear(name, x) * scale))

    def _over_time(self, name: str, x: Array) -> Array:
        columns = zip(x.T, self.w[f"{name}.weight"][::-1].T, strict=True)
        mixed = np.stack([np.convolve(*pair)[: len(x)] for pair in columns], axis=1)
        return mixed + self.w.get(f"{name}.bias", 0)

    def _head_norms(self, at: str, q: Array, k: Array) -> tuple[Array, Array]:
        kind = self.c.qk_norm_type
        if f"{at}k.weight" not in self.w:  # of a layer that has no keys
            return self._norm(at + "q_norm", q, kind), k
        return self._norm(at + "q_norm", q, kind), self._norm(at + "k_norm", k, kind)

    def _is_sliding(self, layer: int) -> bool:
        return bool(self.c.sliding_window) and (self.c.sliding_layers or (True,) * 99)[layer]

    def _seen(self, layer: int, length: int) -> Array:
        back = np.arange(length)[:, None] - np.arange(length)
        window = self.c.sliding_window if self._is_sliding(layer) else length
        if self.c.chunked_window and self._is_sliding(layer):
            chunks = np.arange(length) // window
            return (back >= 0) & (chunks[:, None] == chunks)
        return (back >= 0) & (back < window)

    def _rotated(self, layer: int, x: Array) -> Array:
        c = self.c
        local = c.rope_local_theta is not None and self._is_sliding(layer)
        dim = (c.rotary_local_dim if local else None) or c.rotary_dim or self._head_dim(layer)
        theta = c.rope_local_theta if local else c.rope_theta
        factor = c.rope_factor or 1.0 if c.rope_scaling == "linear" and not local else 1.0
        angles = np.arange(len(x))[:, None] * theta ** (-np.arange(0, dim, 2) / dim) / factor
        if c.rope_scaling == "proportional" and not local:
            turned = np.arange(dim // 2) < (dim if c.rope_pairs is None else c.rope_pairs)
            angles = angles / (c.rope_factor or 1.0) * turned
        angles = -angles if c.rope_reversed else angles
        turned = (x[..., : dim // 2] + 1j * x[..., dim // 2 : dim]) * np.exp(1j * angles[:, None])
        return np.concatenate([turned.real, turned.imag, x[..., dim:]], axis=-1)
