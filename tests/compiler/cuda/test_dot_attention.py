"""Attention of any query to any key, run without a GPU, against float64 by the definition."""

from __future__ import annotations

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.compiler.kernels.cuda.flash_mma import TileLayout
from maxtool.compiler.kernels.kernel_options import HeadSizes, Mask
from tests.compiler.cuda.harness import build, numpy_type, resources, run

Array: TypeAlias = np.ndarray[Any, Any]

LOWEST = float(np.finfo(np.float32).min)


def numbers(seed: int, shape: tuple[int, ...], dtype: str) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(numpy_type(dtype))


def made_mask(dtype: str, shape: tuple[int, ...]) -> Array:
    """Return keys to see, or addends; some rows see no key, and some keys almost none."""
    random = np.random.default_rng(7)
    if dtype == "bool":
        seen = random.random(shape) < 0.6
        return seen & (random.random((*shape[:3], 1)) < 0.9)
    added = random.standard_normal(shape)
    hidden = random.choice([0, LOWEST / 2, -np.inf], shape, p=(0.6, 0.2, 0.2))
    with np.errstate(over="ignore"):
        return (added + hidden).astype(numpy_type(dtype))


def expected(
    q: Array, k: Array, v: Array, mask: Array | None, scale: float, *, causal: bool
) -> tuple[Array, Array]:
    """The result, and that of the values' magnitudes."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (one.astype(np.float64) for one in (q, k, v))
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = q @ k.swapaxes(2, 3) * scale
    if mask is not None and mask.dtype == np.bool_:
        scores = np.where(mask, scores, -np.inf)
    elif mask is not None:
        scores = scores + mask.astype(np.float64)
    n, m = scores.shape[2:]
    if causal:
        scores[:, :, np.arange(m)[None] > np.arange(n)[:, None] + m - n] = -np.inf
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = weights.sum(-1, keepdims=True)
    weights /= np.where(total == 0, 1, total)
    return weights @ v, weights @ abs(v)


def check(
    sizes: tuple[int, int, int],
    heads: HeadSizes,
    dtype: str,
    mask: Mask | None,
    *,
    causal: bool,
) -> None:
    batch, n, m = sizes
    scale = heads.key_dim**-0.5
    q = numbers(0, (batch, heads.queries, n, heads.key_dim), dtype)
    k = numbers(1, (batch, heads.keys, m, heads.key_dim), dtype)
    v = numbers(2, (batch, heads.keys, m, heads.value_dim), dtype)
    inputs = [q, k, v]
    if mask is not None:
        full = (batch, heads.queries, n, m)
        shape = [1 if one else size for one, size in zip(mask.single, full, strict=True)]
        inputs.append(made_mask(mask.dtype, tuple(shape)))
    y = np.zeros((batch, heads.queries, n, heads.value_dim), numpy_type(dtype))
    options = {"dtype": dtype, "heads": heads, "mask": mask, "causal": causal, "scale": scale}
    options["out"] = dtype
    run("dot_attention", *inputs, into=y, **options)
    masks = inputs[3] if mask is not None else None
    exact, most = expected(q, k, v, masks, scale, causal=causal)
    unit = float(ml_dtypes.finfo(y.dtype).eps) / 2
    # Powers are rounded on tensor cores, the result always.
    rounded = 2 * unit if TileLayout(heads, dtype).fits(99 << 10) else unit
    bound = 1e-13 if dtype == "float64" else 1e-5
    assert (abs(y.astype(np.float64) - exact) <= 1.01 * rounded * most + bound).all()


PADDING = Mask("bool", (False, True, True, False))
ADDED = Mask("float32", (True, False, False, False))


@pytest.mark.parametrize(
    ("sizes", "heads", "dtype", "mask", "causal"),
    [
        ((2, 37, 37), HeadSizes(3, 3, 32, 32), "float32", PADDING, False),
        ((1, 5, 70), HeadSizes(4, 2, 6, 9), "float32", ADDED, True),
        ((1, 70, 9), HeadSizes(2, 1, 5, 4), "float64", None, True),
        ((2, 40, 70), HeadSizes(4, 2, 64, 32), "bfloat16", PADDING, False),
        ((1, 70, 40), HeadSizes(2, 1, 16, 16), "float16", ADDED, True),
        ((1, 3, 0), HeadSizes(2, 1, 16, 16), "float16", None, False),
        ((1, 0, 3), HeadSizes(2, 1, 8, 8), "float32", None, False),
    ],
)
def test_any_query_over_any_key(
    sizes: tuple[int, int, int], heads: HeadSizes, dtype: str, mask: Mask | None, causal: bool
) -> None:
    check(sizes, heads, dtype, mask, causal=causal)


masks = st.builds(
    Mask,
    st.sampled_from(["bool", "float32", "own"]),
    st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
)


@pytest.mark.slow
@given(
    st.tuples(st.integers(1, 2), st.integers(0, 70), st.integers(0, 70)),
    st.sampled_from([(1, 1), (4, 2), (6, 2), (3, 3)]),
    st.sampled_from([1, 6, 16, 64, 144]),
    st.sampled_from([1, 8, 32, 128]),
    st.sampled_from(["float32", "float16", "bfloat16", "float64"]),
    st.none() | masks,
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_any_sizes_and_masks(
    sizes: tuple[int, int, int],
    heads: tuple[int, int],
    key_dim: int,
    value_dim: int,
    dtype: str,
    mask: Mask | None,
    causal: bool,
) -> None:
    if mask is not None and mask.dtype == "own":
        mask = Mask(dtype, mask.single)
    check(sizes, HeadSizes(*heads, key_dim, value_dim), dtype, mask, causal=causal)


SHAPES = [
    ("float32", HeadSizes(12, 12, 32, 32), PADDING),
    pytest.param("float16", HeadSizes(12, 12, 64, 64), PADDING, marks=pytest.mark.slow),
    pytest.param("bfloat16", HeadSizes(8, 2, 128, 128), ADDED, marks=pytest.mark.slow),
    pytest.param("float64", HeadSizes(2, 2, 64, 64), None, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("dtype", "heads", "mask"), SHAPES)
def test_machine_code_without_local_memory(dtype: str, heads: HeadSizes, mask: Mask | None) -> None:
    options = {"dtype": dtype, "heads": heads, "mask": mask, "causal": False, "scale": 0.1}
    options["out"] = dtype
    for name, result in resources({"tiles": build("dot_attention", **options)}):
        assert result.stack == 0, name
        assert not result.spills, name
