"""Attention against float64: grouped heads, windows, positions, types and lengths of caches."""

from __future__ import annotations

import numpy as np
import pytest

from maxtool.compiler.cpu_target import CpuTarget, cpu_target
from maxtool.compiler.kernels.cpu import builder
from maxtool.compiler.kernels.cpu.attention import attention
from maxtool.compiler.kernels.cpu.backend import CpuBackend
from maxtool.compiler.kernels.kv_cache_write import cache_write
from tests.effort import thinned

from .harness import HOST, TILE, call, compiled, compiled_for, error, normal

# Scores are inner products of up to 80 terms (2**-24 times a few), which exp turns from absolute to
# relative errors, times scores of a few units; the weighted sum over up to 300 keys adds its own.
BOUND = 2e-6

# The least CPU that runs this machine's code.
GENERIC = cpu_target(f"cpu:{HOST.triple}")

CALLS = [  # batch, seq, position, context
    (1, 1, 0, 1),
    (1, 1, 0, 64),
    (2, 1, 200, 256),
    (1, 2, 0, 2),
    (1, 7, 0, 7),
    (2, 33, 60, 100),
    (1, 1, 299, 300),
    (1, 130, 3, 133),
    (2, 9, 120, 130),
]


def reference(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    position: int,
    window: int | None,
    cap: float | None = None,
    sinks: np.ndarray | None = None,
    *,
    causal: bool = True,
    chunked: bool = False,
) -> np.ndarray:
    """q[batch, seq, heads, d]; k and v [batch, keys, kv_heads, d]; by the definition."""
    q, k, v = (array.astype("f8") for array in (q, k, v))
    group = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, group, 2), np.repeat(v, group, 2)
    scores = np.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    scores = scores if cap is None else cap * np.tanh(scores / cap)
    query = position + np.arange(q.shape[1])[:, None]
    key = np.arange(k.shape[1])[None]
    width = window or 1 << 40
    first = query - query % width if chunked else query - width + 1
    seen = ((key <= query) | (not causal)) & (key >= first)
    scores = np.where(seen, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - top)
    further = 0 if sinks is None else np.exp(sinks.astype("f8")[:, None, None] - top)
    weights /= weights.sum(-1, keepdims=True) + further
    return np.einsum("bhij,bjhd->bihd", weights, v)


def caches(
    k: np.ndarray, v: np.ndarray, context: int, dtype: str = "float32"
) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values as the kernel reads them; what was not written is NaN and must not matter."""
    batch, keys, heads, d = k.shape
    key = np.full((batch, heads, d, context), np.nan, "f4")
    value = np.full((batch, heads, context, d), np.nan, "f4")
    key[..., :keys] = k.transpose(0, 2, 3, 1)
    value[:, :, :keys] = v.transpose(0, 2, 1, 3)
    return passed(key, dtype), passed(value, dtype)


def passed(x: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers in the type that kernels are passed, which of bfloat16 are the bits."""
    stored = x.astype(dtype)
    return stored.view("u2") if dtype == "bfloat16" else stored


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "window"),
    thinned(
        [
            (1, 1, 8, None),
            (9, 3, 64, None),
            (4, 2, 80, None),
            (8, 1, 16, 1),
            (9, 3, 64, 7),
            (4, 2, 80, 64),
            (3, 3, 10, 100),
            (17, 1, 4, 64),
        ],
        (4, 2, 80, None),
        (8, 1, 16, 1),
        (9, 3, 64, 7),
        (17, 1, 4, 64),
    ),
)
def test_attention(heads: int, kv_heads: int, head_dim: int, window: int | None) -> None:
    function = compiled(attention, TILE, heads, kv_heads, head_dim, head_dim**-0.5, window)
    for batch, seq, position, context in CALLS:
        keys = position + seq
        q = 2 * normal(1, batch, seq, heads, head_dim)
        k, v = (
            normal(2, batch, keys, kv_heads, head_dim),
            normal(3, batch, keys, kv_heads, head_dim),
        )
        where = np.array([position], "i4")
        actual = call(function, q, *caches(k, v, context), where, shape=q.shape)
        assert error(actual, reference(q, k, v, position, window)) < BOUND, (batch, seq, position)


@pytest.mark.parametrize("seq", [0, 1, 5])
def test_no_texts(seq: int) -> None:
    function = compiled(attention, TILE, 4, 2, 8, 1.0)
    q, k, v = (np.zeros((0, *sizes), "f4") for sizes in ((seq, 4, 8), (9, 2, 8), (9, 2, 8)))
    actual = call(function, q, *caches(k, v, 16), np.array([3], "i4"), shape=q.shape)
    assert actual.shape == (0, seq, 4, 8)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "chunk"),
    [(8, 1, 16, 1), (9, 3, 64, 7), (4, 2, 80, 64), (17, 1, 4, 100)],
)
def test_chunks(heads: int, kv_heads: int, head_dim: int, chunk: int) -> None:
    options = heads, kv_heads, head_dim, head_dim**-0.5, chunk
    function = compiled(attention, TILE, *options, chunked=True)
    for batch, seq, position, context in [*CALLS, (2, 3, 77, 80), (1, 17, 250, 300)]:
        q = 2 * normal(1, batch, seq, heads, head_dim)
        k, v = (normal(seed, batch, position + seq, kv_heads, head_dim) for seed in (2, 3))
        where = np.array([position], "i4")
        actual = call(function, q, *caches(k, v, context), where, shape=q.shape)
        expected = reference(q, k, v, position, chunk, chunked=True)
        assert error(actual, expected) < BOUND, (batch, seq, position)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "window", "cap"),
    thinned(
        [
            (9, 3, 64, None, None),
            (4, 2, 80, 7, 1.5),
            (8, 1, 128, 64, None),
            (2, 2, 256, None, 30.0),
            (3, 3, 10, 100, None),
        ],
        (9, 3, 64, None, None),
        (4, 2, 80, 7, 1.5),
    ),
)
def test_short_keys_and_values_are_used_exactly(
    dtype: str, heads: int, kv_heads: int, head_dim: int, window: int | None, cap: float | None
) -> None:
    scale = head_dim**-0.5
    function = compiled(attention, TILE, heads, kv_heads, head_dim, scale, window, cap, dtype)
    for batch, seq, position, context in [*CALLS, (2, 3, 77, 80), (1, 17, 250, 300)]:
        keys = position + seq
        q = 2 * normal(1, batch, seq, heads, head_dim)
        k, v = (normal(seed, batch, keys, kv_heads, head_dim).astype(dtype) for seed in (2, 3))
        where = np.array([position], "i4")
        actual = call(function, q, *caches(k, v, context, dtype), where, shape=q.shape)
        expected = reference(q, k.astype("f4"), v.astype("f4"), position, window, cap)
        assert error(actual, expected) < BOUND, (batch, seq, position)


@pytest.mark.parametrize("target", [HOST, GENERIC], ids=["host", "generic"])
def test_every_float16_is_converted_exactly(target: CpuTarget) -> None:
    """A query sees itself alone, so that it gets its value; on the least CPU of this kind, too."""
    every = np.arange(1 << 16, dtype="u2").view("f2").reshape(1, 1, -1, 64)
    context = every.shape[2]
    arguments = target.tile, 1, 1, 64, 1.0, 1, None, "float16"
    function = compiled_for(target, attention(*arguments))
    q, keys = np.zeros((1, context, 1, 64), "f4"), np.zeros((1, 1, 64, context), "f2")
    actual = call(function, q, keys, every, np.zeros(1, "i4"), shape=q.shape)
    finite = np.isfinite(every[0, 0]).all(-1)
    expected = every[0, 0].astype("f4")
    np.testing.assert_array_equal(actual[0, finite, 0], expected[finite])
    np.testing.assert_array_equal(np.isfinite(actual[0, :, 0]), np.isfinite(expected))


CONVERSIONS = {
    "cpu:x86-64-v3": ("vcvtph2ps", "vcvtps2ph"),
    "cpu:x86-64-v4": ("vcvtph2ps", "vcvtps2ph"),
    "cpu:neoverse-n1": ("fcvtl", "fcvtn"),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_float16_is_converted_in_registers(name: str) -> None:
    target, (widening, rounding) = cpu_target(name), CONVERSIONS[name]
    kernels = {
        "read": attention(target.tile, 4, 2, 64, 0.125, dtype="float16"),
        "written": cache_write(CpuBackend(target.tile), 2, 64, "float16"),
    }
    assembly = builder.build(kernels, target.tvm).mod.inspect_source("asm")
    assert widening in assembly
    assert rounding in assembly
    calls = [line for line in assembly.splitlines() if "hfsf2" in line or "sfhf2" in line]
    assert not [line for line in calls if "call" in line or "\tbl\t" in line]


@pytest.mark.parametrize("window", [None, 5])
def test_a_soft_cap(window: int | None) -> None:
    function = compiled(attention, TILE, 4, 2, 12, 12**-0.5, window, 1.5)
    for batch, seq, position, context in CALLS:
        keys = position + seq
        q = 3 * normal(1, batch, seq, 4, 12)
        k, v = normal(2, batch, keys, 2, 12), normal(3, batch, keys, 2, 12)
        where = np.array([position], "i4")
        actual = call(function, q, *caches(k, v, context), where, shape=q.shape)
        assert error(actual, reference(q, k, v, position, window, 1.5)) < BOUND


def test_large_scores_do_not_overflow() -> None:
    q, k = 100 * normal(0, 1, 5, 2, 16), 100 * normal(1, 1, 5, 2, 16)
    v = normal(2, 1, 5, 2, 16)
    function = compiled(attention, TILE, 2, 2, 16, 0.25, None)
    actual = call(function, q, *caches(k, v, 5), np.zeros(1, "i4"), shape=q.shape)
    # Scores near 1e4 are off by 1e-3 in float32, and the weights by as much.
    assert error(actual, reference(q, k, v, 0, None)) < 5e-3


@pytest.mark.parametrize("position", [-9, 62, 1 << 30, -(1 << 31)])
def test_a_position_outside_the_cache_reads_nothing_outside(position: int) -> None:
    q = normal(0, 1, 4, 2, 8)
    k, v = normal(1, 1, 64, 2, 8), normal(2, 1, 64, 2, 8)
    function = compiled(attention, TILE, 2, 2, 8, 1.0, None)
    shape = q.shape
    call(function, q, *caches(k, v, 64), np.array([position], "i4"), shape=shape)  # no crash


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_is_not_hidden(dtype: str, value: float) -> None:
    q, k, v = (normal(seed, 1, 3, 1, 8) for seed in range(3))
    k[0, 1, 0, 3] = value
    q[..., 3] = 1
    function = compiled(attention, TILE, 1, 1, 8, 1.0, None, None, dtype)
    actual = call(function, q, *caches(k, v, 3, dtype), np.zeros(1, "i4"), shape=q.shape)
    assert np.isfinite(actual[0, 0]).all()
    assert np.isnan(actual[0, 1:]).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("window", [None, 4, 70])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_reaches_only_the_queries_that_see_it(
    dtype: str, window: int | None, value: float
) -> None:
    """Values that are not finite, in one chunk with queries before them and beyond their window."""
    seq, position, where = 90, 3, 9
    q = normal(0, 1, seq, 6, 20)
    k, v = (normal(seed, 1, position + seq, 2, 20).astype(dtype).astype("f4") for seed in (1, 2))
    clean = reference(q, k, v, position, window)
    v[0, where, 1, 13] = value
    function = compiled(attention, TILE, 6, 2, 20, 20**-0.5, window, None, dtype)
    at = np.array([position], "i4")
    actual = call(function, q, *caches(k, v, position + seq, dtype), at, shape=q.shape)
    touched = np.zeros(actual.shape, bool)
    last = seq if window is None else where - position + window
    touched[:, where - position : last, 3:, 13] = True
    assert not np.isfinite(actual[touched]).any()
    assert error(np.where(touched, 0, actual), np.where(touched, 0, clean)) < BOUND


@pytest.mark.parametrize("window", [None, 7])
def test_sinks_take_their_share(window: int | None) -> None:
    """One more key of each head, whose value is zero: few keys, many, and those cut into parts."""
    heads, kv_heads, dim = 6, 2, 16
    function = compiled(
        attention, TILE, heads, kv_heads, dim, dim**-0.5, window, None, "float32", sinks=True
    )
    sinks = 3 * normal(4, heads)
    for batch, seq, position, context in CALLS:
        keys = position + seq
        q = 2 * normal(1, batch, seq, heads, dim)
        k, v = (normal(seed, batch, keys, kv_heads, dim) for seed in (2, 3))
        where = np.array([position], "i4")
        actual = call(function, q, *caches(k, v, context), where, sinks, shape=q.shape)
        expected = reference(q, k, v, position, window, sinks=sinks)
        assert error(actual, expected) < BOUND, (batch, seq, position)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("window", [None, 130, 141])
def test_queries_that_see_each_other(window: int | None, dtype: str) -> None:
    """All keys of a call are seen by all of its queries; a window hides some before them."""
    heads, kv_heads, dim = 6, 2, 20
    function = compiled(
        attention, TILE, heads, kv_heads, dim, dim**-0.5, window, None, dtype, causal=False
    )
    for batch, seq, position, context in CALLS:
        keys = position + seq
        q = 2 * normal(1, batch, seq, heads, dim)
        k, v = (
            normal(seed, batch, keys, kv_heads, dim).astype(dtype).astype("f4") for seed in (2, 3)
        )
        where = np.array([position], "i4")
        actual = call(function, q, *caches(k, v, context, dtype), where, shape=q.shape)
        expected = reference(q, k, v, position, window, causal=False)
        assert error(actual, expected) < BOUND, (batch, seq, position)
