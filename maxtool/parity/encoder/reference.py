"""Hidden states and embeddings of encoders in NumPy float64, from the raw checkpoint.

The arithmetic follows the papers: BERT (arXiv:1810.04805), RoBERTa (arXiv:1907.11692), rotary
positions (arXiv:2104.09864), gated MLPs (arXiv:2002.05202), pooling of tokens (arXiv:1908.10084).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.parity.decoder.attention import softmax
from maxtool.parity.decoder.mlp import ACTIVATIONS
from maxtool.parity.encoder.settings import Settings, read_settings
from maxtool.parity.encoder.tensors import Tensors
from maxtool.weights.checkpoint import Checkpoint

Array = NDArray[np.float64]
Integers = NDArray[Any]


class EncoderReference:
    """The reference of an encoder (:class:`maxtool.parity.references.EmbeddingReference`).

    Args:
        checkpoint: A Hugging Face folder or a GGUF file.

    Raises:
        ConfigurationError: If its configuration is wrong or not supported.
        MissingWeight: If tensors are missing.
        MisshapenWeight: If tensors have other shapes than the configuration says.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.settings: Settings = read_settings(checkpoint)
        self._tensors = Tensors(self.settings, checkpoint)

    def forward(self, inputs: Mapping[str, Integers]) -> dict[str, Array]:
        """The tokens' vectors [batch, seq, hidden], and BERT's pooler's if there is one.

        Args:
            inputs: ``input_ids``, ``attention_mask`` and, where it matters, ``token_type_ids``,
                [batch, seq] each.
        """
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        x = self._embed(ids, inputs.get("token_type_ids", np.zeros_like(ids)))
        for layer in range(self.settings.layers):
            x = self._norm("attn_norm", x + self._attention(x, mask, layer), layer)
            x = self._norm("mlp_norm", x + self._mlp(x, layer), layer)
        if not self._tensors.has("pooler"):
            return {"last_hidden_state": x}
        pooled = np.tanh(self._tensors.linear("pooler", x[:, 0]))
        return {"last_hidden_state": x, "pooler_output": pooled}

    def embed(self, inputs: Mapping[str, Integers], pooling: str, *, normalize: bool) -> Array:
        """One vector of each text [batch, hidden].

        Args:
            inputs: As :meth:`forward`, of type 0.
            pooling: ``mean``, ``cls`` or ``max``.
            normalize: Whether it is scaled to length 1.
        """
        hidden = self.forward(inputs)["last_hidden_state"]
        pairs = zip(hidden, inputs["attention_mask"], strict=True)
        vectors = np.stack([POOLINGS[pooling](x[mask == 1]) for x, mask in pairs])
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.maximum(lengths, 1e-12) if normalize else vectors

    def _embed(self, ids: Integers, types: Integers) -> Array:
        x = self._tensors.read("word")[ids]
        if self.settings.types:
            x = x + self._tensors.read("type")[types]
        if self.settings.theta is None:
            x = x + self._positions(ids)
        return self._norm("norm", x)

    def _positions(self, ids: Integers) -> Array:
        """The vector of each position; where tokens are counted, padding has that before the first.

        GGUF files lack that row, which holds zeros.
        """
        table, pad = self._tensors.read("position"), self.settings.pad
        if pad is None:
            return np.broadcast_to(table[: ids.shape[1]], (*ids.shape, table.shape[1]))
        rows = np.where(ids != pad, np.cumsum(ids != pad, axis=1), 0) + self.settings.offset
        before = np.zeros((1, table.shape[1]))
        vectors: Array = np.concatenate([before, table])[rows]
        return vectors

    def _norm(self, role: str, x: Array, layer: int = 0) -> Array:
        weight, bias = (self._tensors.read(role, kind, layer) for kind in ("weight", "bias"))
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        normed: Array = centred / np.sqrt(variance + self.settings.eps) * weight + bias
        return normed

    def _attention(self, x: Array, mask: Integers, layer: int) -> Array:
        batch, seq, _ = x.shape
        q, k, v = (self._heads(self._tensors.linear(role, x, layer)) for role in "qkv")
        if self.settings.theta is not None:
            q, k = (_rotated(y, self.settings.theta) for y in (q, k))
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(self.settings.head_dim)
        seen = np.where(mask[:, None, None, :] == 1, scores, -np.inf)
        mixed = (softmax(seen) @ v).swapaxes(1, 2).reshape(batch, seq, -1)
        return self._tensors.linear("o", mixed, layer)

    def _heads(self, x: Array) -> Array:
        """[batch, seq, heads * head_dim] to [batch, heads, seq, head_dim]."""
        return x.reshape(*x.shape[:2], self.settings.heads, -1).swapaxes(1, 2)

    def _mlp(self, x: Array, layer: int) -> Array:
        act, up = ACTIVATIONS[self.settings.activation], self._tensors.linear("up", x, layer)
        gated = self.settings.gated
        inner = act(self._tensors.linear("gate", x, layer)) * up if gated else act(up)
        return self._tensors.linear("down", inner, layer)


def _rotated(x: Array, theta: float) -> Array:
    """Each pair of a head's two halves, turned by its position times its frequency."""
    half = x.shape[-1] // 2
    angles = np.outer(np.arange(x.shape[2]), theta ** (-np.arange(half) / half))
    first, second = x[..., :half], x[..., half:]
    turned = first * np.cos(angles) - second * np.sin(angles)
    return np.concatenate([turned, second * np.cos(angles) + first * np.sin(angles)], axis=-1)


def _mean(x: Array) -> Array:
    mean: Array = x.mean(axis=0)
    return mean


def _first(x: Array) -> Array:
    first: Array = x[0]
    return first


def _largest(x: Array) -> Array:
    largest: Array = x.max(axis=0)
    return largest


POOLINGS = {"mean": _mean, "cls": _first, "max": _largest}
