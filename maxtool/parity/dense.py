"""Layers over the width of a model: products, tables of rows, norms and experts."""

from __future__ import annotations

from math import prod

import numpy as np

from maxtool.parity.array_types import Definitions, Floats, Integers


def softmax(x: Floats, axes: tuple[int, ...]) -> Floats:
    """Compute ``exp(x) / sum(exp(x))`` along axes, shifted so that exp cannot overflow."""
    powers = np.exp(x - x.max(axes, keepdims=True, initial=-np.inf))
    return powers / powers.sum(axes, keepdims=True)


def _logsoftmax(x: Floats, axes: tuple[int, ...]) -> Floats:
    shifted = x - x.max(axes, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.exp(shifted).sum(axes, keepdims=True))


def _standardized(x: Floats, axes: tuple[int, ...], eps: float) -> Floats:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def _l2_norm(x: Floats, eps: float) -> Floats:
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + eps)


def _layer_norm(x: Floats, gamma: Floats, beta: Floats, eps: float) -> Floats:
    return _standardized(x, (-1,), eps) * gamma + beta


def _group_norm(x: Floats, gamma: Floats, beta: Floats, num_groups: int, eps: float) -> Floats:
    grouped = x.reshape(x.shape[0], num_groups, prod(x.shape[1:]) // num_groups)
    channels = (-1, *[1] * (x.ndim - 2))
    result = _standardized(grouped, (-1,), eps).reshape(x.shape)
    return result * gamma.reshape(channels) + beta.reshape(channels)


def _rms_norm(
    x: Floats,
    weight: Floats,
    eps: float,
    weight_offset: float,
    multiply_before_cast: bool,  # noqa: ARG001 - nothing is rounded here
) -> Floats:
    """The formula of Zhang & Sennrich 2019 (arXiv:1910.07467)."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * (weight + weight_offset)


def _linear(x: Floats, weight: Floats, bias: Floats | float = 0.0) -> Floats:
    return x @ weight.T + bias


def _weighted_sum(x: Floats, shares: Floats) -> Floats:
    return (x * shares[..., None]).sum(-2)


def _embedding(ids: Integers, table: Floats) -> Floats:
    return table[ids.clip(0, len(table) - 1)]


def _expert_linear(x: Floats, weight: Floats, chosen: Integers) -> Floats:
    """The rows of each expert times its matrix, of which one at a time is widened."""
    experts = chosen.clip(0, len(weight) - 1)
    own = x if x.ndim == chosen.ndim + 1 else x[..., None, :]
    rows = np.broadcast_to(own, (*chosen.shape, x.shape[-1]))
    result = np.empty((*chosen.shape, weight.shape[1]))
    for expert in np.unique(experts):
        result[experts == expert] = rows[experts == expert] @ weight[expert].T.astype(np.float64)
    return result


COMPUTED: Definitions = {
    "group_norm": _group_norm,
    "l2_norm": _l2_norm,
    "layer_norm": _layer_norm,
    "linear": _linear,
    "logsoftmax": _logsoftmax,
    "matmul": np.matmul,
    "rms_norm": _rms_norm,
    "softmax": softmax,
    "weighted_sum": _weighted_sum,
}

MOVED: Definitions = {
    "embedding": _embedding,
    "expert_linear": _expert_linear,
}
