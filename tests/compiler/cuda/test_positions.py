"""Rotary and learned positions and writes into caches, run without a GPU, against NumPy."""

from __future__ import annotations

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.compiler.kernels.cuda.backend import CudaBackend
from maxtool.compiler.kernels.cuda.rope import rope
from maxtool.compiler.kernels.cuda.rope_into_cache import rope_into_cache
from maxtool.compiler.kernels.kv_cache_write import cache_write
from maxtool.compiler.kernels.positions import add_positions, rope_angles
from tests.simt import run

Array: TypeAlias = np.ndarray[Any, Any]

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
FEW = settings(max_examples=12, deadline=None)
# Before the cache, at its start, inside, across its end, behind it, and as far as numbers go.
POSITIONS = st.sampled_from([-3, 0, 1, 5, 12, 16, (1 << 31) - 1, -(1 << 31)])
dtypes = st.sampled_from(sorted(TYPES))


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def at(position: int) -> Array:
    return np.array([position], np.int32)


def rotated(x: Array, cos: Array, sin: Array, first: int) -> Array:
    """x[batch, seq, heads, dim] by the definition, in float64."""
    rows = np.clip(first + np.arange(x.shape[1]), 0, len(cos) - 1)
    c, s = (table[rows][:, None].astype(np.float64) for table in (cos, sin))
    half = cos.shape[1]
    low, high, rest = np.split(x.astype(np.float64), [half, 2 * half], -1)
    return np.concatenate([low * c - high * s, high * c + low * s, rest], -1)


def written(cache: Array, x: Array, position: int) -> Array:
    """cache[batch, heads, context, dim] with x[batch, seq, heads, dim] in it."""
    result = cache.copy()
    for s in range(x.shape[1]):
        if 0 <= position + s < cache.shape[2]:
            result[:, :, position + s] = x[:, s].astype(cache.dtype)
    return result


@given(st.data(), POSITIONS, st.sampled_from([(8, 8), (6, 6), (80, 32), (10, 4), (64, 64)]))
@FEW
def test_rope(data: st.DataObject, position: int, dims: tuple[int, int]) -> None:
    head_dim, dim = dims
    batch, seq, heads = (data.draw(st.integers(1, top)) for top in (2, 5, 3))
    x = normal(0, batch, seq, heads, head_dim)
    cos, sin = normal(1, 16, dim // 2), normal(2, 16, dim // 2)
    y = np.zeros_like(x)
    run(rope(head_dim, dim), x, cos, sin, at(position), y)
    np.testing.assert_allclose(y, rotated(x, cos, sin, position), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(y[..., dim:], x[..., dim:])


@given(st.integers(1, 9), st.sampled_from([-2, 0, 3, 30]), st.integers(1, 5))
@FEW
def test_angles_by_length(seq: int, position: int, half: int) -> None:
    frequencies = normal(0, 7, half)
    row = min(max(position + seq - 4, 0), 6)
    factor = 0.7 if position + seq > 4 else 1.5
    angles = (position + np.arange(seq, dtype=np.float32))[:, None] * frequencies[row]
    for name, exact in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
        y = np.zeros((seq, half), np.float32)
        run(rope_angles(CudaBackend(), half, 4, 1.5, 0.7, name), frequencies, at(position), y)
        np.testing.assert_allclose(y, exact * np.float32(factor), rtol=1e-5, atol=1e-6)


@given(POSITIONS, dtypes, st.sampled_from([1, 7, 12, 64, 520]))
@FEW
def test_learned_positions(position: int, dtype: str, hidden: int) -> None:
    x, table = normal(0, 2, 5, hidden), normal(1, 16, hidden).astype(TYPES[dtype])
    y = np.zeros_like(x)
    run(add_positions(CudaBackend(), hidden, dtype), x, table, at(position), y)
    rows = np.clip(position + np.arange(5), 0, 15)
    np.testing.assert_array_equal(y, x + table[rows].astype(np.float32))


@given(POSITIONS, dtypes, st.sampled_from([1, 7, 8, 80]), st.integers(1, 3))
@FEW
def test_writes_into_caches(position: int, dtype: str, dim: int, heads: int) -> None:
    x = normal(0, 2, 6, heads, dim)
    before = np.full((2, heads, 16, dim), 7, TYPES[dtype])
    expected = written(before, x, position)
    values, keys = before.copy(), np.ascontiguousarray(before.swapaxes(2, 3))
    for cache, transposed in ((values, False), (keys, True)):
        kernel = cache_write(CudaBackend(), heads, dim, dtype, transposed)
        run(kernel, cache, x, at(position), updated=(0,))
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(keys.swapaxes(2, 3), expected)


@given(
    POSITIONS,
    dtypes,
    st.sampled_from([(8, 8), (6, 6), (80, 32), (10, 4), (64, 64)]),
    st.sampled_from([(1, 1), (4, 2), (3, 1)]),
    st.booleans(),
)
@FEW
def test_rotation_and_writes_together(
    position: int, dtype: str, dims: tuple[int, int], heads: tuple[int, int], offset: bool
) -> None:
    """The row of the angles is the position, or where they were computed in the call, 0."""
    (head_dim, dim), (queries, keys) = dims, heads
    q, k, v = (normal(i, 2, 3, n, head_dim) for i, n in enumerate((queries, keys, keys)))
    cos, sin = normal(3, 16, dim // 2), normal(4, 16, dim // 2)
    first = position if offset else 0
    caches = [np.full((2, keys, 16, head_dim), 7, TYPES[dtype]) for _ in range(2)]
    y = np.zeros_like(q)
    kernel = rope_into_cache(queries, keys, head_dim, dim, dtype)
    tables = cos, sin, at(first), at(position)
    expected = written(caches[1], v, position)
    # What is rounded to 16 bits was computed in float32.
    exact = written(caches[0].astype(np.float64), rotated(k, cos, sin, first), position)
    run(kernel, *caches, q, k, v, *tables, y, updated=(0, 1))
    np.testing.assert_array_equal(caches[1], expected)
    step = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
    np.testing.assert_allclose(caches[0].astype(np.float64), exact, rtol=step, atol=1e-6)
    np.testing.assert_allclose(y, rotated(q, cos, sin, first), rtol=1e-5, atol=1e-6)
