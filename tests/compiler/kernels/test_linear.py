"""The linear kernel against float64, over sizes that divide nothing."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from maxtool.compiler.kernels.cpu.linear import CACHED, CHUNKS, FEW, linear
from maxtool.compiler.kernels.cpu.linear_product import BLOCK, TILES_PER_TASK
from maxtool.compiler.packing import pack_linear
from tests.effort import thinned

from .harness import TILE, call, compiled, error, normal

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
ROWS = (1, 2, 3, 7, 8, 9, 33, 130)

# Rounding of k products and sums: each is off by at most 2**-24 of it, and the errors of a sum of
# random terms grow with the root of k, which for k = 2048 is 45 * 2**-24 = 2.7e-6 at the worst, and
# a tenth of that in practice, since the kernel sums in several chains.
BOUND = 1e-6


def weight(seed: int, n: int, k: int, dtype: str) -> np.ndarray:
    return normal(seed, n, k).astype(DTYPES[dtype])


def packed(w: np.ndarray) -> np.ndarray:
    p = pack_linear(w, TILE.nr)
    return p.view(np.uint16) if w.dtype == ml_dtypes.bfloat16 else p


@pytest.mark.parametrize("n", thinned([1, 5, 32, 40, 172, 512], 1, 32, 172))
@pytest.mark.parametrize("k", thinned([1, 3, 64, 172], 1, 172))
def test_sizes_learned_at_run_time(n: int, k: int) -> None:
    w = weight(0, n, k, "float32")
    function = compiled(linear, TILE, "float32")
    for rows in ROWS:
        x = normal(rows, rows, k)
        assert error(call(function, x, packed(w), shape=(rows, n)), x.astype("f8") @ w.T) < BOUND


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("n", "k"), [(5, 3), (172, 64), (40, 172)])
def test_short_weights_are_used_exactly(dtype: str, n: int, k: int) -> None:
    w = weight(1, n, k, dtype)
    function = compiled(linear, TILE, dtype)
    for rows in ROWS:
        x = normal(rows, rows, k)
        expected = x.astype("f8") @ w.astype("f8").T
        assert error(call(function, x, packed(w), shape=(rows, n)), expected) < BOUND


@pytest.mark.parametrize("n", [1, 40, 64])
def test_bias(n: int) -> None:
    w, bias = weight(2, n, 64, "float32"), normal(3, n)
    function = compiled(linear, TILE, "float32", True)
    for rows in (1, 13):
        x = normal(rows, rows, 64)
        actual = call(function, x, packed(w), bias, shape=(rows, n))
        assert error(actual, x.astype("f8") @ w.T + bias) < BOUND


@pytest.mark.parametrize("k", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
def test_blocks_of_k_are_added(k: int) -> None:
    w = weight(4, 33, k, "float32")
    function = compiled(linear, TILE, "float32")
    for rows in (1, 2, 130):
        x = normal(rows, rows, k)
        assert error(call(function, x, packed(w), shape=(rows, 33)), x.astype("f8") @ w.T) < BOUND


@pytest.mark.parametrize("k", [1537, 301])
def test_threads_that_stay_with_their_rows(k: int) -> None:
    """Chunks have as many tiles as there may be, and half as many where rows are long."""
    rows, n = CACHED // (2 * k) + CHUNKS * TILES_PER_TASK * TILE.mr + 1, 70
    assert TILES_PER_TASK * TILE.mr * k <= CACHED
    assert n * k <= FEW
    x, w = normal(7, rows, k), weight(8, n, k, "float32")
    function = compiled(linear, TILE, "float32")
    assert error(call(function, x, packed(w), shape=(rows, n)), x.astype("f8") @ w.T) < BOUND


def test_no_terms() -> None:
    function = compiled(linear, TILE, "float32")
    for k in (600, 0):  # what lay in the sums' memory before must not be seen
        x, w = normal(9, 13, k), weight(10, 5, k, "float32")
        actual = call(function, x, packed(w), shape=(13, 5))
    assert not actual.any()


def test_no_rows() -> None:
    function = compiled(linear, TILE, "float32")
    w = packed(weight(0, 5, 3, "float32"))
    assert call(function, np.zeros((0, 3), "f4"), w, shape=(0, 5)).shape == (0, 5)


@pytest.mark.parametrize("rows", [1, 5])
def test_what_is_not_finite_stays_in_its_row_and_column(rows: int) -> None:
    w = weight(5, 40, 8, "float32")
    w[33, 2] = np.inf
    x = np.abs(normal(6, rows, 8)) + 1
    x[-1, 3] = np.nan
    actual = call(compiled(linear, TILE, "float32"), x, packed(w), shape=(rows, 40))
    assert np.isnan(actual[-1]).all()
    assert np.isposinf(actual[:-1, 33]).all()
    assert np.isfinite(np.delete(actual[:-1], 33, 1)).all()
