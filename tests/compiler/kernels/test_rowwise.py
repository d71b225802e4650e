"""Embedding, normalisation, gating, rotation and cache writes against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm

from maxtool.compiler.kernels.cpu.embedding import embedding
from maxtool.compiler.kernels.cpu.norm import rms_norm
from maxtool.compiler.kernels.cpu.rope import rope
from maxtool.compiler.kernels.cpu.row_parts import cut_rows, join_rows
from maxtool.compiler.kernels.kernel_options import SILU_MUL
from maxtool.compiler.kernels.kv_cache_write import cache_write
from maxtool.compiler.kernels.pointwise import pointwise
from maxtool.compiler.packing import pack_linear

from .harness import BACKEND, TILE, call, compiled, error, normal

DIMS = [1, 5, 8, 64, 80, 172, 576]
ROWS = (1, 3, 130)

# A handful of float32 operations per element, each off by at most 2**-24 = 6e-8.
BOUND = 4e-7


@pytest.mark.parametrize("dim", DIMS)
def test_rms_norm(dim: int) -> None:
    function = compiled(rms_norm, TILE, dim, 1e-5)
    w = normal(0, dim)
    for rows in ROWS:
        x = normal(rows, rows, dim)
        wide = x.astype("f8")
        expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * w
        assert error(call(function, x, w, shape=x.shape), expected) < BOUND


def test_rms_norm_of_zeros_is_zero() -> None:
    x = np.zeros((2, 64), "f4")
    assert not call(compiled(rms_norm, TILE, 64, 1e-6), x, normal(0, 64), shape=x.shape).any()


@pytest.mark.parametrize("dim", DIMS)
def test_silu_mul(dim: int) -> None:
    function = compiled(pointwise, BACKEND, dim, 2, SILU_MUL)
    for rows in ROWS:
        gate, up = 20 * normal(rows, rows, dim), normal(rows + 1, rows, dim)
        wide = gate.astype("f8")
        expected = wide / (1 + np.exp(-wide)) * up
        actual = call(function, gate, up, shape=gate.shape)
        np.testing.assert_allclose(actual, expected, rtol=BOUND, atol=1e-35)


def test_silu_keeps_what_is_not_finite() -> None:
    gate = np.array([[np.inf, -np.inf, np.nan, 1e38, -1e38, 0, -0.0, -87, -104]], "f4")
    function = compiled(pointwise, BACKEND, 9, 2, SILU_MUL)
    actual = call(function, gate, np.ones_like(gate), shape=gate.shape)[0]
    assert actual[0] == np.inf
    assert np.isnan(actual[2])
    assert actual[3] == np.float32(1e38)
    assert (actual[4:7] == 0).all()
    np.testing.assert_allclose(actual[7], -87 * np.exp(-87.0), rtol=BOUND)
    assert abs(actual[8]) < 1e-35


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("vocab", "dim"), [(37, 20), (512, 64), (1, 1)])
@pytest.mark.parametrize("block", [1, TILE.nr])
def test_embedding(block: int, dtype: type, vocab: int, dim: int) -> None:
    table = normal(0, vocab, dim).astype(dtype)
    packed = pack_linear(table, block)
    if dtype is ml_dtypes.bfloat16:
        packed = packed.view(np.uint16)
    function = compiled(embedding, TILE, vocab, dim, np.dtype(dtype).name, block)
    wild = [-1, -(1 << 62), vocab, 1 << 40, vocab - 1, 0]
    for ids in (np.array(wild), np.random.default_rng(1).integers(0, vocab, 700)):
        expected = table[np.clip(ids, 0, vocab - 1)].astype("f4")
        actual = call(function, ids.astype(np.int64), packed, shape=(len(ids), dim))
        np.testing.assert_array_equal(actual, expected)


ROWS_OF = [np.float32, np.int64, np.int8, np.float64]


def copied(function: Any, *inputs: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The output, of the type of the inputs, each of whose elements is 77 before."""
    out = tvm.runtime.tensor(np.full(shape, 77, inputs[0].dtype))
    function(*map(tvm.runtime.tensor, inputs), out)
    return np.asarray(out.numpy())


@pytest.mark.parametrize("dtype", ROWS_OF)
@pytest.mark.parametrize("widths", [(3,), (1, 40, 17), (64, 64)])
def test_rows_are_joined(dtype: type, widths: tuple[int, ...]) -> None:
    function = compiled(join_rows, TILE, np.dtype(dtype).name, widths)
    for rows in (0, 1, 5, 700):
        parts = [(9 * normal(i, rows, width)).astype(dtype) for i, width in enumerate(widths)]
        actual = copied(function, *parts, shape=(rows, sum(widths)))
        np.testing.assert_array_equal(actual, np.concatenate(parts, 1))


@pytest.mark.parametrize("dtype", ROWS_OF)
@pytest.mark.parametrize(("width", "first", "count"), [(7, 2, 3), (130, 64, 66), (40, 0, 33)])
def test_parts_of_rows_are_cut(dtype: type, width: int, first: int, count: int) -> None:
    function = compiled(cut_rows, TILE, np.dtype(dtype).name, width, first, count)
    for rows in (0, 1, 5, 700):
        x = (9 * normal(3, rows, width)).astype(dtype)
        actual = copied(function, x, shape=(rows, count))
        np.testing.assert_array_equal(actual, x[:, first : first + count])


def rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Rotate as Hugging Face's Llama: the second half, negated, takes the place of the first."""
    half = x.shape[-1] // 2
    turned = np.concatenate([-x[..., half:], x[..., :half]], -1)
    double = [np.concatenate([table, table], -1)[None, :, None] for table in (cos, sin)]
    return x * double[0] + turned * double[1]


@pytest.mark.parametrize(
    ("heads", "head_dim", "dim"),
    [(1, 2, 2), (3, 8, 8), (2, 80, 80), (9, 64, 64), (2, 80, 32), (3, 9, 2), (1, 128, 96)],
)
def test_rope(heads: int, head_dim: int, dim: int) -> None:
    angles = np.outer(np.arange(150), 1e4 ** -(np.arange(dim // 2) / (dim // 2)))
    cos, sin = np.cos(angles).astype("f4"), np.sin(angles).astype("f4")
    function = compiled(rope, TILE, head_dim, dim)
    for batch, seq, position in ((1, 1, 0), (2, 1, 149), (2, 33, 7), (1, 130, 20)):
        x = normal(seq, batch, seq, heads, head_dim)
        at = slice(position, position + seq)
        expected = x.astype("f8")
        tables = cos[at].astype("f8"), sin[at].astype("f8")
        expected[..., :dim] = rotated(expected[..., :dim], *tables)
        where = np.array([position], "i4")
        actual = call(function, x, cos, sin, where, shape=x.shape)
        assert error(actual, expected) < BOUND
        np.testing.assert_array_equal(actual[..., dim:], x[..., dim:])


@pytest.mark.parametrize("position", [-5, 148, 1 << 30])
def test_rope_outside_its_tables_takes_their_ends(position: int) -> None:
    tables = normal(0, 150, 4), normal(1, 150, 4)
    x = normal(2, 1, 9, 2, 8)
    rows = np.clip(position + np.arange(9), 0, 149)
    expected = rotated(x.astype("f8"), *(table[rows].astype("f8") for table in tables))
    where = np.array([position], "i4")
    actual = call(compiled(rope, TILE, 8, 8), x, *tables, where, shape=x.shape)
    assert error(actual, expected) < BOUND


@pytest.mark.parametrize("position", [0, 5, 60, -3, 64, 1 << 30, -(1 << 31)])
@pytest.mark.parametrize("head_dim", [8, 10, 64])
def test_cache_writes_only_what_fits(position: int, head_dim: int) -> None:
    batch, seq, heads, context = 2, 7, 3, 64
    x = normal(0, batch, seq, heads, head_dim)
    expected = np.full((batch, heads, context, head_dim), 7, "f4")
    for s in range(seq):
        if 0 <= position + s < context:
            expected[:, :, position + s] = x[:, s]
    where = tvm.runtime.tensor(np.array([position], "i4"))
    value = tvm.runtime.tensor(np.full_like(expected, 7))
    key = tvm.runtime.tensor(np.full((batch, heads, head_dim, context), 7, "f4"))
    for cache, transposed in ((value, False), (key, True)):
        function = compiled(cache_write, BACKEND, heads, head_dim, "float32", transposed)
        function(cache, tvm.runtime.tensor(x), where)
    np.testing.assert_array_equal(value.numpy(), expected)
    np.testing.assert_array_equal(key.numpy(), expected.swapaxes(2, 3))


# Halfway between neighbours of each type, too small, too large, and no numbers.
EDGES = (1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8, 2.0**-25, 3 * 2.0**-26, 6e-8, 65504)
EDGES += (65519.9, 65520, 1e6, 3.4e38, np.inf, np.nan, 0, 1e-45)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_cache_rounds_to_nearest_even(dtype: str, transposed: bool) -> None:
    x = np.array([EDGES, -np.array(EDGES)], "f4").reshape(1, 2, 1, -1)
    with np.errstate(over="ignore"):
        expected = x.astype(dtype).astype("f4")[:, :, 0]
    shape = (1, 1, x.shape[3], 2) if transposed else (1, 1, 2, x.shape[3])
    cache = tvm.runtime.tensor(np.zeros(shape, "f2" if dtype == "float16" else "u2"))
    function = compiled(cache_write, BACKEND, 1, x.shape[3], dtype, transposed)
    function(cache, tvm.runtime.tensor(x), tvm.runtime.tensor(np.zeros(1, "i4")))
    actual = cache.numpy()[:, 0].view(dtype).astype("f4")
    np.testing.assert_array_equal(actual.swapaxes(1, 2) if transposed else actual, expected)
