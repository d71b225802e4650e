"""Attention without a cache beside NumPy in float64: masks, groups, any lengths and types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, executor, ops
from tests.effort import thinned

Array = np.ndarray[Any, Any]

F32 = DType.float32
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-5, "float64": 1e-12}
rng = np.random.default_rng(0)


def attended(q: Array, k: Array, v: Array, mask: Array | None, causal: bool, scale: float) -> Array:
    """A query that sees nothing gets zeros."""
    q, k, v = (one.astype(np.float64) for one in (q, k, v))
    groups, (queries, keys) = q.shape[1] // k.shape[1], (q.shape[2], k.shape[2])
    scores = q @ np.repeat(k, groups, 1).swapaxes(2, 3) * scale
    if mask is not None:
        scores = scores + (np.where(mask, 0.0, -np.inf) if mask.dtype == np.bool_ else mask)
    if causal:
        scores[..., ~np.tri(queries, keys, keys - queries, dtype=np.bool_)] = -np.inf
    top = np.maximum(scores.max(-1, keepdims=True, initial=-np.inf), -1e300)
    powers = np.exp(scores - top)
    weights = powers / np.maximum(powers.sum(-1, keepdims=True), 1e-300)
    return np.asarray(weights @ np.repeat(v, groups, 1))


@pytest.mark.parametrize("name", thinned(TOLERANCE, "bfloat16", "float64"))
def test_what_numpy_computes(name: str) -> None:
    dtype = DType(name)

    def call(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor) -> list[Tensor]:
        attention = ops.scaled_dot_product_attention
        return [
            attention(q, k, v),
            attention(q, k, v, causal=True),
            attention(q, k, v, mask, scale=0.5),
            attention(q, k, v, bias, causal=True),
        ]

    kinds = [
        TensorType(dtype, ["b", 4, "n", 21]),
        TensorType(dtype, ["b", 2, "m", 21]),
        TensorType(dtype, ["b", 2, "m", 18]),
        TensorType(DType.bool, ["n", "m"]),
        TensorType(dtype, ["b", 1, 1, "m"]),
    ]
    run = executor.find_executor().compile(Graph("g", call, kinds), {})
    for b, n, m in ((2, 3, 5), (1, 4, 4), (1, 3, 2), (2, 2, 0)):
        shapes = (b, 4, n, 21), (b, 2, m, 21), (b, 2, m, 18)
        q, k, v = (rng.standard_normal(shape).astype(dtype.to_numpy()) for shape in shapes)
        mask = rng.random((n, m)) < 0.7
        mask[0] = False
        bias = np.where(rng.random((b, 1, 1, m)) < 0.3, -np.inf, 0.5).astype(dtype.to_numpy())
        wanted = [
            attended(q, k, v, None, False, 21**-0.5),
            attended(q, k, v, None, True, 21**-0.5),
            attended(q, k, v, mask, False, 0.5),
            attended(q, k, v, bias.astype(np.float64), True, 21**-0.5),
        ]
        for got, one in zip(run(*map(Tensor, (q, k, v, mask, bias))), wanted, strict=True):
            assert (got.dtype, got.shape) == (dtype, list(one.shape))
            scale = TOLERANCE[name]
            np.testing.assert_allclose(
                got.to_numpy().astype(np.float64), one, rtol=scale, atol=2 * scale
            )


def test_at_once_and_with_scores_that_would_overflow() -> None:
    q, k, v = (100 * rng.standard_normal((1, 1, 2, 16)).astype(np.float32) for _ in range(3))
    got = ops.scaled_dot_product_attention(q, k, v).to_numpy()
    np.testing.assert_allclose(got, attended(q, k, v, None, False, 0.25), rtol=1e-4)
    k[0, 0, 0, 0] = np.nan
    assert np.isnan(ops.scaled_dot_product_attention(q, k, v).to_numpy()).all()


def kind(*shape: int | str, dtype: DType = F32) -> TensorType:
    return TensorType(dtype, shape)


Q, K = kind("b", 4, "n", 8), kind("b", 2, "m", 8)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ([kind(4, "n", 8), K, K], r"scaled_dot_product_attention\(.*\[batch, heads, length, dim\]"),
        ([Q, kind("b", 3, "m", 8), kind("b", 3, "m", 8)], r"multiple of key"),
        ([Q, kind("b", 2, "m", 4), K], r"keys are \[b, heads, keys, 8\]"),
        ([Q, K, kind("b", 2, "other", 8)], r"values are \[b, 2, m, dim\]"),
        ([Q, K, kind("b", 2, "m", 8, dtype=DType.float16)], r"one type"),
        ([Q, K, K, kind("m", "n")], r"the mask broadcasts to"),
        ([Q, K, K, kind("n", "m", dtype=DType.int32)], r"a mask is bool or float32, not int32"),
    ],
)
def test_operands_that_do_not_fit(types: list[TensorType], message: str) -> None:
    call: Callable[..., Tensor] = ops.scaled_dot_product_attention
    with pytest.raises(ValueError, match=message):
        Graph("g", call, types)
