"""Logits of Llama-like decoders in NumPy float64, from the raw checkpoint.

The arithmetic follows the papers: RMSNorm (arXiv:1910.07467), rotary positions (arXiv:2104.09864),
grouped queries (arXiv:2305.13245), gated SiLU (arXiv:2002.05202), sliding windows (Mistral,
arXiv:2310.06825), linear position scaling (arXiv:2306.15595). Weights are read one layer at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.errors import MisshapenWeight, MissingWeight, UsageError
from maxtool.parity.decoder_settings import Settings, read_settings
from maxtool.weights.checkpoint import Checkpoint

Array = NDArray[np.float64]

HEAD_ROWS = 8192
"""Vocabulary rows widened to float64 at a time."""


class Decoder:
    """The reference of a decoder (:class:`maxtool.parity.references.CachedReference`).

    Args:
        checkpoint: As :func:`reference_logits` takes it.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint

    def forward(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Array]:
        """Logits at every position [batch, seq, vocab] of ``input_ids`` [batch, seq]."""
        return {"logits": reference_logits(self._checkpoint, inputs["input_ids"])}

    def cached(self, input_ids: NDArray[Any], starts: Sequence[int]) -> Array:
        """Logits after the last token of each call [batch, calls, vocab]."""
        ends = [*starts[1:], input_ids.shape[1]]
        return reference_logits(self._checkpoint, input_ids)[:, [end - 1 for end in ends]]


def reference_logits(checkpoint: Checkpoint, input_ids: NDArray[Any]) -> Array:
    """Logits at every position, in float64.

    Args:
        checkpoint: A Hugging Face folder (model_type llama or mistral, the configuration in either
            spelling) or a GGUF file (architecture llama). Quantized tensors are dequantized.
        input_ids: Integer token ids [batch, seq].

    Returns:
        Logits [batch, seq, vocab].

    Raises:
        ConfigurationError: If the model is of another kind or its configuration is wrong.
        MissingWeight: If tensors are missing.
        MisshapenWeight: If tensors have other shapes than the configuration says.
        UsageError: If ``input_ids`` is not a matrix of ids below the vocabulary size.
    """
    settings = read_settings(checkpoint)
    _check_tensors(settings, checkpoint)
    _check_ids(settings, input_ids)
    embed = settings.name("embed")
    x = _stored(checkpoint, embed)[input_ids].astype(np.float64)
    for layer in range(settings.layers):
        x = _layer(settings, _layer_weights(settings, checkpoint, layer), x)
    x = rms_norm(x, _read(checkpoint, settings.name("norm")), settings.eps)
    return _head(x, _stored(checkpoint, embed if settings.tied else settings.name("head")))


def _check_tensors(settings: Settings, checkpoint: Checkpoint) -> None:
    wanted, found = dict(settings.tensors()), checkpoint.tensors
    if missing := [name for name in wanted if name not in found]:
        raise MissingWeight("tensors are missing", file=checkpoint.path, problems=missing)
    misshapen = [
        f"{name} has shape {list(found[name].shape)}, not {list(shape)}"
        for name, shape in wanted.items()
        if tuple(found[name].shape) != shape
    ]
    if misshapen:
        raise MisshapenWeight(
            "tensors have other shapes than the configuration says",
            file=checkpoint.path,
            problems=misshapen,
        )


def _check_ids(settings: Settings, ids: NDArray[Any]) -> None:
    if ids.ndim != 2 or not ids.size or not np.issubdtype(ids.dtype, np.integer):
        found = f"{ids.dtype} {list(ids.shape)}"
        raise UsageError(f"token ids must be integers [batch, seq], at least one, not {found}")
    if not 0 <= ids.min() <= ids.max() < settings.vocab:
        raise UsageError(f"token ids must be at least 0 and less than {settings.vocab}")


def _stored(checkpoint: Checkpoint, name: str) -> NDArray[Any]:
    """A tensor as stored, or as float32 if it is quantized."""
    weight = checkpoint.read(name)
    return (weight.astype(DType.float32) if weight.quantization_encoding else weight).data


def _read(checkpoint: Checkpoint, name: str) -> Array:
    return _stored(checkpoint, name).astype(np.float64)


def _layer_weights(settings: Settings, checkpoint: Checkpoint, layer: int) -> Callable[..., Array]:
    """A function of role and kind that reads one tensor of the layer, so that none is kept."""

    def read(role: str, kind: str = "weight") -> Array:
        return _read(checkpoint, settings.name(role, kind, layer))

    return read


def _layer(settings: Settings, weights: Callable[..., Array], x: Array) -> Array:
    def linear(role: str, inputs: Array) -> Array:
        product = inputs @ weights(role).T
        return product + weights(role, "bias") if role in settings.biased else product

    y = rms_norm(x, weights("attn_norm"), settings.eps)
    q, k, v = (_split(linear(role, y), settings.head_dim) for role in ("q", "k", "v"))
    q, k = rotate(q, settings), rotate(k, settings)
    x = x + linear("o", attend(q, k, v, settings.window))
    y = rms_norm(x, weights("mlp_norm"), settings.eps)
    return x + linear("down", silu(linear("gate", y)) * linear("up", y))


def _split(x: Array, head_dim: int) -> Array:
    """[batch, seq, heads * head_dim] to [batch, heads, seq, head_dim]."""
    return x.reshape(*x.shape[:2], -1, head_dim).transpose(0, 2, 1, 3)


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """``x`` [..., n] over its root mean square, times ``weight`` [n]."""
    mean = np.mean(np.square(x), axis=-1, keepdims=True)
    normed: Array = x / np.sqrt(mean + eps) * weight
    return normed


def silu(x: Array) -> Array:
    """Each element times its logistic function, written so that exp cannot overflow."""
    activated: Array = x * (1 + np.tanh(x / 2)) / 2
    return activated


def rotate(x: Array, settings: Settings) -> Array:
    """Rotate each two-element plane of the heads [batch, heads, seq, head_dim] by its position."""
    half = settings.head_dim // 2
    frequencies = settings.theta ** (-np.arange(half) / half)
    angles = np.arange(x.shape[2])[:, None] / settings.factor * frequencies
    first, second = (np.s_[0::2], np.s_[1::2]) if settings.pairs else (np.s_[:half], np.s_[half:])
    a, b = x[..., first], x[..., second]
    rotated = np.empty_like(x)
    rotated[..., first] = a * np.cos(angles) - b * np.sin(angles)
    rotated[..., second] = b * np.cos(angles) + a * np.sin(angles)
    return rotated


def attend(q: Array, k: Array, v: Array, window: int | None) -> Array:
    """Causal attention with grouped queries.

    Args:
        q: [batch, heads, seq, head_dim]; head ``h`` uses key head ``h * kv_heads // heads``.
        k: [batch, kv_heads, seq, head_dim].
        v: As ``k``.
        window: How many of the latest keys a query sees, its own among them; None for all.

    Returns:
        [batch, seq, heads * head_dim].
    """
    batch, heads, seq, head_dim = q.shape
    k, v = (np.repeat(x, heads // k.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(head_dim)
    age = np.subtract.outer(np.arange(seq), np.arange(seq))
    seen = (age >= 0) & (age < (window or seq))
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed: Array = weights / weights.sum(axis=-1, keepdims=True) @ v
    return mixed.swapaxes(1, 2).reshape(batch, seq, -1)


def _head(x: Array, weight: NDArray[Any]) -> Array:
    """``x @ weight.T``, widening a few rows of the weight at a time."""
    logits = np.empty((*x.shape[:-1], len(weight)))
    for start in range(0, len(weight), HEAD_ROWS):
        rows = weight[start : start + HEAD_ROWS].astype(np.float64)
        logits[..., start : start + HEAD_ROWS] = x @ rows.T
    return logits
