"""Attention over caches, run without a GPU, against float64 by the definition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from maxtool.compiler.kernels.cuda.attention import attention
from maxtool.compiler.kernels.cuda.attention_scores import Scores
from maxtool.compiler.kernels.cuda.flash_mma import TileLayout
from maxtool.compiler.kernels.cuda.split_kv import (
    attention_step,
    split_kv_attention,
    takes_steps,
)
from maxtool.compiler.kernels.cuda.split_kv_combine import combine_splits
from maxtool.compiler.kernels.cuda.split_kv_plan import SplitPlan
from maxtool.compiler.kernels.kernel_options import HeadSizes
from maxtool.errors import CompilationFailed
from tests.simt import run

Array: TypeAlias = np.ndarray[Any, Any]

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
FEW = settings(max_examples=8, deadline=None)
HEADS = st.sampled_from([(1, 1), (4, 2), (6, 2), (9, 1), (3, 3)])
WINDOWS = st.sampled_from([None, None, 1, 7, 40])
CAPS = st.sampled_from([None, None, 2.0])


@dataclass
class Problem:
    """Queries and a cache whose unwritten part is NaN, which must not matter."""

    q: Array
    k: Array
    v: Array
    position: int
    scores: Scores
    sinks: Array | None = None  # [heads]: the score of one more key of each, whose value is zero

    @property
    def further(self) -> list[Array]:
        return [] if self.sinks is None else [self.sinks]

    @property
    def at(self) -> Array:
        return np.array([self.position], np.int32)

    def expected(self) -> tuple[Array, Array]:
        """[batch, seq, heads, dim] in float64, and the same with the values' magnitudes."""
        (_, seq, heads, _), kv_heads = self.q.shape, self.k.shape[1]
        seen = self.position + seq
        k, v = (
            np.repeat(one[:, :, :seen].astype(np.float64), heads // kv_heads, 1)
            for one in (self.k, self.v)
        )
        actual = np.einsum("bihd,bhjd->bhij", self.q.astype(np.float64), k) * self.scores.scale
        if (cap := self.scores.softcap) is not None:
            actual = cap * np.tanh(actual / cap)
        query, key = self.position + np.arange(seq)[:, None], np.arange(seen)[None]
        width = self.scores.window or 1 << 40
        first = query - query % width if self.scores.chunked else query - width + 1
        hidden = (key > query) & self.scores.causal | (key < first)
        actual[:, :, hidden] = -np.inf
        top = actual.max(-1, keepdims=True)
        weights = np.exp(actual - top)
        total = weights.sum(-1, keepdims=True)
        if self.sinks is not None:
            total = total + np.exp(self.sinks[:, None, None].astype(np.float64) - top)
        weights /= total
        y, most = (np.einsum("bhij,bhjd->bihd", weights, one) for one in (v, abs(v)))
        return y, most


def problem(
    batch: int,
    seq: int,
    position: int,
    context: int,
    heads: tuple[int, int],
    dim: int,
    dtype: str,
    scores: Scores,
    *,
    sinks: bool = False,
) -> Problem:
    rng = np.random.default_rng(context + dim)
    q = rng.standard_normal((batch, seq, heads[0], dim), np.float32)
    caches = []
    for _ in range(2):
        cache = np.full((batch, heads[1], context, dim), np.nan, TYPES[dtype])
        seen = cache[:, :, : position + seq]
        seen[...] = rng.standard_normal(seen.shape, np.float32).astype(cache.dtype)
        caches.append(cache)
    own = 3 * rng.standard_normal(heads[0], np.float32) if sinks else None
    return Problem(q, *caches, position, scores, own)


@st.composite
def positions(draw: st.DrawFn, longest: int) -> tuple[int, int]:
    """A position, and a context beyond it."""
    position = draw(st.integers(0, longest - 1))
    return position, draw(st.sampled_from([position + 1, longest]))


@given(
    st.integers(1, 2),
    positions(300),
    HEADS,
    st.sampled_from([1, 6, 8, 10, 64, 80, 128]),
    st.sampled_from(sorted(TYPES)),
    WINDOWS,
    CAPS,
    st.sampled_from([1, 3, 32, 40]),
    st.booleans(),
    st.booleans(),
)
@FEW
def test_one_token(
    batch: int,
    where: tuple[int, int],
    heads: tuple[int, int],
    dim: int,
    dtype: str,
    window: int | None,
    softcap: float | None,
    splits: int,
    chunked: bool,
    sinks: bool,
) -> None:
    scores = Scores(dim**-0.5, window, softcap, chunked=chunked and window is not None)
    one = problem(batch, 1, *where, heads, dim, dtype, scores, sinks=sinks)
    out = np.full((batch, heads[0], splits, dim), np.nan, np.float32)
    sums = np.full((batch, heads[0], splits, 2), np.nan, np.float32)
    y = np.zeros_like(one.q)
    run(
        split_kv_attention(*heads, dim, scores, dtype, splits),
        one.q,
        one.k,
        one.v,
        one.at,
        out,
        sums,
    )
    run(combine_splits(heads[0], dim, splits, sinks=sinks), out, sums, *one.further, y)
    np.testing.assert_allclose(y, one.expected()[0], rtol=1e-5, atol=2e-6)


def check_tiles(one: Problem, dtype: str, kibibytes: int = 99, *, rounded: bool = False) -> None:
    """Powers are rounded where tensor cores multiply; queries too, but that these are already."""
    heads, dim = (one.q.shape[2], one.k.shape[1]), one.q.shape[3]
    if rounded:
        one.q = one.q.astype(TYPES[dtype]).astype(np.float32)
    scores = one.scores
    options = (scores.scale, scores.window, scores.softcap, dtype)
    y = np.full_like(one.q, np.nan)
    kinds = {"causal": scores.causal, "chunked": scores.chunked, "sinks": one.sinks is not None}
    kernel = attention(kibibytes << 10, *heads, dim, *options, **kinds)
    run(kernel, one.q, one.k, one.v, one.at, *one.further, y)
    exact, most = one.expected()
    unit = float(ml_dtypes.finfo(TYPES[dtype]).eps) / 2 if rounded else 0
    assert (abs(y - exact) <= 1.01 * unit * most + 1e-5).all()


@pytest.mark.parametrize(
    ("dim", "dtype", "seq", "position", "window", "kibibytes"),
    [
        (8, "float32", 70, 9, 20, 99),
        (8, "float32", 70, 9, -20, 99),  # in chunks
        (6, "bfloat16", 3, 40, None, 99),
        (64, "float32", 33, 0, None, 20),
    ],
)
def test_many_tokens_without_tensor_cores(
    dim: int, dtype: str, seq: int, position: int, window: int | None, kibibytes: int
) -> None:
    scores = Scores(dim**-0.5, window and abs(window), chunked=(window or 0) < 0)
    check_tiles(
        problem(2, seq, position, position + seq + 1, (4, 2), dim, dtype, scores), dtype, kibibytes
    )


@pytest.mark.parametrize(
    ("dim", "dtype", "seq", "position", "window", "softcap"),
    [
        (64, "bfloat16", 70, 60, None, None),
        (80, "float16", 40, 0, 20, 5.0),
        (144, "bfloat16", 17, 50, 7, None),
        (64, "bfloat16", 70, 60, -40, None),  # in chunks
    ],
)
def test_many_tokens_on_tensor_cores(
    dim: int, dtype: str, seq: int, position: int, window: int | None, softcap: float | None
) -> None:
    scores = Scores(dim**-0.5, window and abs(window), softcap, chunked=(window or 0) < 0)
    one = problem(2, seq, position, position + seq + 1, (6, 2), dim, dtype, scores)
    check_tiles(one, dtype, rounded=True)


@pytest.mark.parametrize(
    ("dim", "dtype", "seq", "position", "window"),
    [
        (8, "float32", 70, 9, None),
        (64, "bfloat16", 70, 60, 75),
        (80, "float16", 40, 130, 40),
    ],
)
def test_queries_that_see_each_other(
    dim: int, dtype: str, seq: int, position: int, window: int | None
) -> None:
    """All keys of a call are seen by all of its queries; a window hides some before them."""
    scores = Scores(dim**-0.5, window, causal=False)
    one = problem(2, seq, position, position + seq + 1, (6, 2), dim, dtype, scores)
    check_tiles(one, dtype, rounded=dim > 8)


@pytest.mark.parametrize(("dim", "dtype"), [(8, "float32"), (64, "bfloat16"), (144, "float16")])
def test_sinks_take_their_share(dim: int, dtype: str) -> None:
    """One is so high that nothing is left to the keys that are there."""
    one = problem(2, 40, 9, 60, (6, 2), dim, dtype, Scores(dim**-0.5, 20), sinks=True)
    assert one.sinks is not None
    one.sinks[3] = 300
    check_tiles(one, dtype, rounded=dim > 8)


@pytest.mark.slow
@given(
    st.integers(1, 2),
    st.integers(1, 70),
    positions(150),
    HEADS,
    st.sampled_from([1, 6, 8, 10, 16, 64, 80, 128, 144, 256]),
    st.sampled_from(sorted(TYPES)),
    WINDOWS,
    CAPS,
    st.sampled_from([99, 20]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_many_tokens(
    batch: int,
    seq: int,
    where: tuple[int, int],
    heads: tuple[int, int],
    dim: int,
    dtype: str,
    window: int | None,
    softcap: float | None,
    kibibytes: int,
    chunked: bool,
) -> None:
    """Tiles are small where shared memory is."""
    position, context = where
    scores = Scores(dim**-0.5, window, softcap, chunked=chunked and window is not None)
    one = problem(batch, seq, position, context + seq, heads, dim, dtype, scores)
    kibibytes = kibibytes if dim <= 128 else 99
    rounded = TileLayout(HeadSizes(*heads, dim, dim), dtype).fits(kibibytes << 10)
    check_tiles(one, dtype, kibibytes, rounded=rounded)


def turned(x: Array, cos: Array, sin: Array) -> Array:
    """x[..., dim] rotated by one row of angles."""
    half = len(cos)
    low, high, rest = np.split(x.astype(np.float64), [half, 2 * half], -1)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin, rest], -1)


@given(
    st.integers(1, 2),
    positions(300),
    st.sampled_from([(1, 1), (4, 2), (6, 2), (3, 3)]),
    st.sampled_from([(6, 6), (10, 4), (64, 64), (80, 32), (128, 128)]),
    st.sampled_from(sorted(TYPES)),
    WINDOWS,
    st.sampled_from([1, 3, 32]),
)
@FEW
def test_one_token_rotated_written_and_attended_to(
    batch: int,
    where: tuple[int, int],
    heads: tuple[int, int],
    widths: tuple[int, int],
    dtype: str,
    window: int | None,
    splits: int,
) -> None:
    (position, context), (dim, rotated) = where, widths
    assume(takes_steps(SplitPlan(heads[0] // heads[1], dim, dtype)))
    scores = Scores(dim**-0.5, window)
    one = problem(batch, 1, position, context, heads, dim, dtype, scores)
    rng = np.random.default_rng(0)
    cos, sin = (rng.standard_normal((5, rotated // 2), np.float32) for _ in range(2))
    new = [rng.standard_normal((batch, 1, heads[1], dim), np.float32) for _ in range(2)]
    for cache in (one.k, one.v):
        cache[:, :, position:] = np.nan
    out = np.full((batch, heads[0], splits, dim), np.nan, np.float32)
    sums = np.full((batch, heads[0], splits, 2), np.nan, np.float32)
    y = np.full_like(one.q, np.nan)
    kernel = attention_step(*heads, dim, rotated, scores, dtype, splits)
    row = np.array([3], np.int32)
    run(kernel, one.k, one.v, one.q, *new, cos, sin, row, one.at, out, sums, updated=(0, 1))
    run(combine_splits(heads[0], dim, splits), out, sums, y)
    written = [turned(new[0], cos[3], sin[3]), new[1]]
    for cache, exact in zip((one.k, one.v), written, strict=True):
        step = float(ml_dtypes.finfo(cache.dtype).eps)
        held = cache[:, :, position].astype(np.float64)
        np.testing.assert_allclose(held, exact[:, 0], rtol=step, atol=1e-6)
        assert np.isnan(cache[:, :, position + 1 :].astype(np.float32)).all()
    one.q = turned(one.q, cos[3], sin[3])
    np.testing.assert_allclose(y, one.expected()[0], rtol=1e-5, atol=5e-6)


def test_heads_that_no_block_has_room_for() -> None:
    with pytest.raises(CompilationFailed, match="heads of 4000 elements"):
        split_kv_attention(1, 1, 4000, Scores(1.0), "float32", 2)
    with pytest.raises(CompilationFailed, match="heads of 4000 elements"):
        attention(99 << 10, 1, 1, 4000, 1.0, None, None, "float32")
