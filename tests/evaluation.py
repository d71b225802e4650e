"""What a traced graph says, computed by NumPy in float64, one operation after the other.

No compiler is involved, so that a model takes milliseconds: this is how tests compute thousands of
small ones. It knows the operations of decoders and encoders without a cache, and refuses others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from maxtool.graph import Dim, Graph
from maxtool.graph.node import CallNode, Node
from maxtool.graph.polynomial import Polynomial

Array = np.ndarray[Any, Any]
Values = dict[int, Array]
Sizes = dict[str, int]


def evaluate(graph: Graph, inputs: list[Array], weights: Mapping[str, Array]) -> list[Array]:
    """The outputs of a graph.

    Args:
        graph: One with names for its weights.
        inputs: Its inputs.
        weights: The elements of every weight that it uses.

    Raises:
        KeyError: If a weight is missing, or an operation is not one of ``RULES``.
    """
    return _run(graph, inputs, {}, [weights[name] for name in graph.weight_values])


def _run(
    graph: Graph, inputs: list[Array], held: Mapping[str, Array], weights: list[Array]
) -> list[Array]:
    values: Values = {}
    values |= {id(value): held[name] for name, value in graph.placeholders.items()}
    values |= dict(zip(map(id, graph.weight_values.values()), weights, strict=True))
    values |= {id(value): constant.to_numpy() for constant, value in graph.constants}
    values |= dict(zip(map(id, graph.inputs), inputs, strict=True))
    sizes = {
        dim.value: size
        for value, array in zip(graph.inputs, inputs, strict=True)
        for dim, size in zip(value.shape, array.shape, strict=True)
        if isinstance(dim.value, str)
    }
    for node in graph.nodes:
        operands = [values[id(value)] for value in node.inputs]
        if isinstance(node, CallNode):
            results = _call(node, operands, values)
        else:
            results = RULES[node.op](node, sizes, *_wide(operands))
        values |= dict(zip(map(id, node.outputs), results, strict=True))
    return [values[id(value)] for value in graph.outputs]


def _call(node: CallNode, operands: list[Array], values: Values) -> list[Array]:
    given = [values[id(value)] for value in node.weights]
    held = dict(zip(node.callee.placeholders, given, strict=False))
    return _run(node.callee, operands, held, given[len(held) :])


def _wide(operands: list[Array]) -> list[Array]:
    """Floats in float64; other elements as they are."""
    return [np.float64(one) if one.dtype.kind == "f" else one for one in operands]


def _size(dim: Dim, sizes: Sizes) -> int:
    if isinstance(dim.value, Polynomial):
        return int(dim.value.evaluate(sizes))
    return sizes[dim.value] if isinstance(dim.value, str) else dim.value


# --- the operations ------------------------------------------------------------------------------

Rule = Callable[..., "list[Array]"]


def _plain(function: Callable[..., Any]) -> Rule:
    """A rule for what needs neither attributes nor sizes."""
    return lambda _node, _sizes, *operands: [function(*operands)]


def _attributed(function: Callable[..., Any]) -> Rule:
    """A rule for what takes its attributes by name."""
    return lambda node, _sizes, *operands: [function(*operands, **node.attributes)]


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _gelu(x: Array) -> Array:
    return x * (1 + _erf(x / math.sqrt(2))) / 2


def _gelu_tanh(x: Array) -> Array:
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def _softmax(x: Array, axes: tuple[int, ...]) -> Array:
    powers = np.exp(x - x.max(axes, keepdims=True))
    return powers / powers.sum(axes, keepdims=True)


def _layer_norm(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    variance = x.var(-1, keepdims=True)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(variance + eps) * gamma + beta


def _rms_norm(
    x: Array, weight: Array, eps: float, weight_offset: float, multiply_before_cast: bool
) -> Array:
    assert not multiply_before_cast or x.dtype == np.float64
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * (weight + weight_offset)


def _linear(x: Array, weight: Array, bias: Array | float = 0.0) -> Array:
    return x @ weight.T + bias


def _rope(x: Array, cos: Array, sin: Array, position: Array) -> Array:
    """Of [batch, seq, heads, dim], the first ``2 * cos.shape[1]`` elements of a head."""
    half = cos.shape[1]
    rows = slice(int(position[0]), int(position[0]) + x.shape[1])
    cos, sin = cos[rows, None], sin[rows, None]
    left, right, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return np.concatenate([left * cos - right * sin, right * cos + left * sin, rest], -1)


def _rope_angles(
    tokens: Array, table: Array, position: Array, original: int, factor: float
) -> list[Array]:
    length = int(position[0]) + tokens.shape[1]
    row = np.float32(table[np.clip(length - original, 0, len(table) - 1)])
    places = np.arange(int(position[0]), length, dtype=np.float32)
    angles = np.outer(places, row).astype(np.float64)
    return [np.cos(angles) * factor, np.sin(angles) * factor]


def _attended(query: Array, key: Array, value: Array, mask: Array, cap: float | None) -> Array:
    """Of [batch, heads, length, dim]; the queries are scaled already, each head has its keys."""
    scores = query @ key.swapaxes(-1, -2)
    bent = scores if cap is None else cap * np.tanh(scores / cap)
    return _softmax(np.where(mask, bent, -np.inf), (-1,)) @ value


def _shared(x: Array, heads: int) -> Array:
    return np.repeat(x, heads // x.shape[1], axis=1)


def _attention(
    query: Array,
    key: Array,
    value: Array,
    position: Array,
    scale: float,
    window: int | None,
    softcap: float | None,
    transposed: bool,
) -> Array:
    assert transposed
    heads = query.shape[2]
    queries = int(position[0]) + np.arange(query.shape[1])[:, None]
    keys = np.arange(key.shape[3])
    mask = (keys <= queries) & (keys > queries - (window or math.inf))
    key, value = _shared(key.swapaxes(-1, -2), heads), _shared(value, heads)
    mixed = _attended(query.swapaxes(1, 2) * scale, key, value, mask, softcap)
    return mixed.swapaxes(1, 2)


def _unordered_attention(
    query: Array, key: Array, value: Array, mask: Array, causal: bool, scale: float | None
) -> Array:
    assert not causal and mask.dtype == bool
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    heads = query.shape[1]
    return _attended(query * factor, _shared(key, heads), _shared(value, heads), mask, None)


def _top_k(x: Array, axes: tuple[int, ...], k: int) -> list[Array]:
    places = np.argsort(-x, axis=axes[0], kind="stable").take(range(k), axes[0])
    return [np.take_along_axis(x, places, axes[0]), places]


def _expert_linear(x: Array, weight: Array, chosen: Array) -> Array:
    rows = x if x.ndim == chosen.ndim + 1 else x[..., None, :]
    return np.einsum("...oi,...i->...o", weight[chosen], rows)


def _cumsum(x: Array, axes: tuple[int, ...], exclusive: bool, reverse: bool) -> Array:
    assert not exclusive and not reverse
    return x.cumsum(axes[0])


def _reshape(node: Node, sizes: Sizes, x: Array) -> list[Array]:
    return [x.reshape([_size(dim, sizes) for dim in node.outputs[0].shape])]


def _slice(node: Node, sizes: Sizes, x: Array) -> list[Array]:
    for axis, part in enumerate(node.attributes["ranges"]):
        start, count = _size(part.start, sizes), _size(part.size, sizes)
        x = x.take([start + part.step * place for place in range(count)], axis)
    return [x]


RULES: Mapping[str, Rule] = {
    "add": _plain(np.add),
    "add_positions": _plain(lambda x, table, start: x + table[int(start[0]) :][: x.shape[1]]),
    "attention": _attributed(_attention),
    "cast": _attributed(lambda x, dtype: x.astype(dtype.to_numpy())),
    "cumsum": _attributed(_cumsum),
    "div": _plain(np.divide),
    "embedding": _plain(lambda ids, table: table[ids]),
    "expert_linear": _plain(_expert_linear),
    "gelu": _plain(_gelu),
    "gelu_tanh": _plain(_gelu_tanh),
    "layer_norm": _attributed(_layer_norm),
    "linear": _plain(_linear),
    "mul": _plain(np.multiply),
    "not_equal": _plain(np.not_equal),
    "permute": _attributed(lambda x, dims: x.transpose(dims)),
    "relu": _plain(lambda x: np.maximum(x, 0)),
    "reshape": _reshape,
    "rms_norm": _attributed(_rms_norm),
    "rope": _plain(_rope),
    "rope_angles": lambda node, _, *operands: _rope_angles(*operands, **node.attributes),
    "scaled_dot_product_attention": _attributed(_unordered_attention),
    "silu": _plain(lambda x: x / (1 + np.exp(-x))),
    "slice": _slice,
    "softmax": _attributed(_softmax),
    "sum": _attributed(lambda x, axes: x.sum(axes, keepdims=True)),
    "tanh": _plain(np.tanh),
    "top_k": lambda node, _, x: _top_k(x, **node.attributes),
    "weighted_sum": _plain(lambda x, shares: (x * shares[..., None]).sum(-2)),
}
