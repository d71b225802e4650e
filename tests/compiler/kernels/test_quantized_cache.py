"""Caches in blocks of Q8_0: what is written, by the codec of gguf, and what is read of it."""

from __future__ import annotations

from dataclasses import replace

import gguf
import numpy as np
import pytest
import tvm

from maxtool.compiler.cpu_target import CpuTarget
from maxtool.compiler.kernels.cpu.attention import quantized_attention
from maxtool.compiler.kernels.cpu.quantize_q8_0 import quantize_q8_0
from maxtool.compiler.kernels.kv_cache_write import cache_write
from tests.effort import thinned

from .harness import BACKEND, HOST, TILE, call, compiled, compiled_for, error, normal
from .test_attention import BOUND, CALLS, GENERIC, reference
from .test_integer_dot import NATIVE

Q8_0 = gguf.GGMLQuantizationType.Q8_0


def blocks(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quants and scales by the gguf package, which rounds as ggml's reference does."""
    rows = gguf.quants.quantize(x.reshape(-1, x.shape[-1]), Q8_0)
    records = rows.reshape(*x.shape[:-1], -1, 34)
    scales = np.ascontiguousarray(records[..., :2]).view("<f2")[..., 0]
    return np.ascontiguousarray(records[..., 2:]).view("i1").reshape(x.shape), scales


def meant(quants: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return quants * np.repeat(scales.astype("f4"), 32, -1)


def quantized(x: np.ndarray, *, packed: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The same by the kernel."""
    function = compiled(quantize_q8_0, TILE, *x.shape[2:], packed)
    quants = tvm.runtime.tensor(np.full(x.shape, 99, "i1").view("i4" if packed else "i1"))
    scales = tvm.runtime.tensor(np.full((*x.shape[:-1], x.shape[-1] // 32), np.nan, "f2"))
    function(tvm.runtime.tensor(x), quants, scales)
    return quants.numpy(), scales.numpy()


@pytest.mark.parametrize("head_dim", [32, 64, 96, 256])
@pytest.mark.parametrize("seq", [1, 3, 17])
def test_blocks_are_those_of_ggml(seq: int, head_dim: int) -> None:
    """Magnitudes of all sizes, halves between two steps, zeros of both signs."""
    x = normal(seq, 2, seq, 3, head_dim) * np.exp(4 * normal(1, 2, seq, 3, 1))
    x[0, 0, 0] = np.where(np.arange(head_dim) % 2, -0.0, 0.0)
    x[1, 0, 1] = np.arange(head_dim) % 32 - 15.5
    x[1, 0, 1, ::32] = 127
    for actual, expected in zip(quantized(x), blocks(x), strict=True):
        np.testing.assert_array_equal(actual, expected)
    words, scales = quantized(x, packed=True)
    np.testing.assert_array_equal(words.view("i1"), blocks(x)[0])
    np.testing.assert_array_equal(scales, blocks(x)[1])


def test_blocks_that_are_not_finite() -> None:
    x = normal(0, 1, 1, 1, 160)
    x[..., 3], x[..., 40], x[..., 64 + 5], x[..., 128] = np.nan, -np.inf, 1e30, 1e-38
    quants, scales = quantized(x)
    finite = [False, False, False, True, True]
    np.testing.assert_array_equal(np.isfinite(scales[0, 0, 0]), finite)
    with np.errstate(invalid="ignore"):
        values = meant(quants, scales)[0, 0, 0].reshape(5, 32)
    assert np.isnan(values[:2]).all()
    assert not np.isfinite(values[2]).any()
    assert np.isfinite(values[3:]).all()


def test_tiny_blocks_are_zeros() -> None:
    x = np.float32(2.0**-120) * normal(0, 1, 1, 2, 64)
    quants, scales = quantized(x)
    assert not scales.any()
    assert not meant(quants, scales).any()


def cached(
    x: np.ndarray, context: int, *, transposed: bool
) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Quants and scales as a cache has them, NaN where none were written, and what they mean."""
    parts, held = blocks(x), []
    for part, empty in zip(parts, (77, np.nan), strict=True):
        batch, keys, heads, width = part.shape
        buffer = np.full((batch, heads, context, width), empty, part.dtype)
        buffer[:, :, :keys] = part.swapaxes(1, 2)
        held.append(buffer.swapaxes(2, 3) if transposed else buffer)
    quants, scales = held
    if transposed:
        quants = np.ascontiguousarray(quants.swapaxes(2, 3)).view("<i4").swapaxes(2, 3)
    return (quants, scales), meant(*parts)


def rounded(q: np.ndarray, scale: float) -> np.ndarray:
    """Queries as the kernel multiplies them: in eight bits, halves to even, rounded once."""
    rows = (q * np.float32(scale)).reshape(*q.shape[:-1], -1, 32)
    largest = np.abs(rows).max(-1, keepdims=True)
    steps = np.rint(rows.astype("f8") * (np.float32(127) / largest))
    return (steps * (largest / np.float32(127)).astype("f8")).reshape(q.shape) / scale


SHAPES = [
    (9, 3, 64, None, None),
    (4, 2, 96, 7, 1.5),
    (8, 1, 128, 64, None),
    (17, 1, 32, None, None),
    (2, 2, 256, 100, 30.0),
]


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "window", "cap"), thinned(SHAPES, SHAPES[0], SHAPES[1])
)
def test_attention(
    heads: int, kv_heads: int, head_dim: int, window: int | None, cap: float | None
) -> None:
    scale = head_dim**-0.5
    options = heads, kv_heads, head_dim, scale, window, cap
    function = compiled(quantized_attention, HOST, *options)
    for batch, seq, position, context in [*CALLS, (2, 3, 77, 80), (1, 17, 250, 300)]:
        keys = position + seq
        q = 2 * normal(1, batch, seq, heads, head_dim)
        k, keys_meant = cached(normal(2, batch, keys, kv_heads, head_dim), context, transposed=True)
        v, values_meant = cached(
            normal(3, batch, keys, kv_heads, head_dim), context, transposed=False
        )
        where = np.array([position], "i4")
        actual = call(function, q, *k, *v, where, shape=q.shape)
        queries = rounded(q, scale)
        expected = reference(queries, keys_meant, values_meant, position, window, cap)
        assert error(actual, expected) < BOUND, (batch, seq, position)


@pytest.mark.parametrize("name", [*NATIVE, "none"])
def test_attention_by_each_instruction_set(name: str) -> None:
    target = replace(HOST, features=(name,))
    function = compiled_for(HOST, quantized_attention(target, 9, 3, 64, 0.125, 50, 2.0))
    q = 2 * normal(1, 2, 5, 9, 64)
    k, keys = cached(normal(2, 2, 205, 3, 64), 230, transposed=True)
    v, values = cached(normal(3, 2, 205, 3, 64), 230, transposed=False)
    actual = call(function, q, *k, *v, np.array([200], "i4"), shape=q.shape)
    assert error(actual, reference(rounded(q, 0.125), keys, values, 200, 50, 2.0)) < BOUND


def test_attention_by_slot() -> None:
    function = compiled(quantized_attention, HOST, 6, 2, 64, 0.125, 50, slots=True)
    slots, positions = [2, 0, 4], [0, 149, 63]
    k, keys = cached(normal(2, 5, 150, 2, 64), 150, transposed=True)
    v, values = cached(normal(3, 5, 150, 2, 64), 150, transposed=False)
    q = 2 * normal(1, 3, 1, 6, 64)
    where = np.array(positions, "i4"), np.array(slots, "i4")
    actual = call(function, q, *k, *v, *where, shape=q.shape)
    for row, (slot, position) in enumerate(zip(slots, positions, strict=True)):
        seen = (x[slot : slot + 1, : position + 1] for x in (keys, values))
        expected = reference(rounded(q[row : row + 1], 0.125), *seen, position, 50)
        assert error(actual[row : row + 1], expected) < BOUND, (slot, position)


@pytest.mark.parametrize("target", [HOST, GENERIC], ids=["host", "generic"])
def test_what_is_not_finite_stays_in_its_row(target: CpuTarget) -> None:
    """Check it on the least CPU of this kind, too; a head of keys serves two of queries."""
    function = compiled_for(target, quantized_attention(target, 2, 1, 32, 1.0))
    q = normal(0, 1, 3, 2, 32)
    q[0, 1, 0, 5] = np.inf
    k, keys = cached(normal(1, 1, 3, 1, 32), 3, transposed=True)
    v, values = cached(normal(2, 1, 3, 1, 32), 3, transposed=False)
    v[1][0, 0, 2] = np.nan
    actual = call(function, q, *k, *v, np.zeros(1, "i4"), shape=q.shape)
    assert np.isnan(actual[0, 1, 0]).all()
    assert np.isnan(actual[0, 2]).all()
    for row, head in ((0, 0), (0, 1), (1, 1)):
        scores = rounded(q[0, row, head], 1.0) @ keys[0, : row + 1, 0].T
        weights = np.exp(scores - scores.max())
        expected = weights @ values[0, : row + 1, 0] / weights.sum()
        assert error(actual[0, row, head], expected) < BOUND


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("dtype", "width"), [("int8", 64), ("int32", 16), ("float16", 2)])
def test_parts_are_written_as_they_are(dtype: str, width: int, transposed: bool) -> None:
    """A write outside is dropped."""
    x = (100 * normal(0, 2, 5, 3, width)).astype(dtype)
    for position in (0, 11, 13, -2):
        expected = np.full((2, 3, 16, width), 7, dtype)
        first, last = max(position, 0), min(position + 5, 16)
        rows = x[:, first - position : last - position]
        expected[:, :, first:last] = rows.swapaxes(1, 2)
        shape = (2, 3, width, 16) if transposed else expected.shape
        cache = tvm.runtime.tensor(np.full(shape, 7, dtype))
        function = compiled(cache_write, BACKEND, 3, width, dtype, transposed, source=dtype)
        function(cache, tvm.runtime.tensor(x), tvm.runtime.tensor(np.array([position], "i4")))
        actual = cache.numpy().swapaxes(2, 3) if transposed else cache.numpy()
        np.testing.assert_array_equal(actual, expected)
