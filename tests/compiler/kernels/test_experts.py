"""Products with chosen matrices, and their weighted sums, against NumPy float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from maxtool.compiler.kernels.cpu.experts import expert_linear
from maxtool.compiler.kernels.weighted_sum import weighted_sum
from maxtool.compiler.packing import pack_linear
from tests.effort import thinned

from .harness import BACKEND, TILE, call, compiled, error, normal

# Sums of up to 600 products, one after the other.
BOUND = 1e-6
STORED = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def packed(weights: np.ndarray) -> np.ndarray:
    laid = np.stack([pack_linear(weight, TILE.nr) for weight in weights])
    return laid.view(np.uint16) if laid.dtype == ml_dtypes.bfloat16 else laid


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize(("n", "k"), thinned([(1, 1), (37, 21), (64, 600)], (37, 21)))
def test_expert_linear(dtype: str, n: int, k: int) -> None:
    function = compiled(expert_linear, TILE, dtype)
    many = 8 * TILE.mr  # what one task takes at most
    for rows, used, experts in ((1, 2, 5), (7, 1, 1), (9, 3, 3), (2 * many + 5, 2, 3), (0, 2, 4)):
        rng = np.random.default_rng(rows)
        weights = normal(1, experts, n, k).astype(STORED[dtype])
        order = np.array([rng.permutation(experts)[:used] for _ in range(rows)], "i8")
        chosen = order.reshape(rows, used)
        x = normal(2, rows, k)
        wide = weights.astype("f8")[chosen]
        shared = np.einsum("rk,rsnk->rsn", x.astype("f8"), wide).reshape(-1, n)
        result = call(function, x, packed(weights), chosen.reshape(-1), shape=shared.shape)
        assert error(result, shared) < BOUND
        each = normal(3, rows * used, k)
        own = np.einsum("rsk,rsnk->rsn", each.astype("f8").reshape(rows, used, k), wide)
        result = call(function, each, packed(weights), chosen.reshape(-1), shape=shared.shape)
        assert error(result, own.reshape(-1, n)) < BOUND


def test_all_rows_choose_one_expert_of_many() -> None:
    x, weights = normal(0, 300, 8), normal(1, 40, 5, 8)
    chosen = np.full(300, 17, "i8")
    result = call(
        compiled(expert_linear, TILE, "float32"), x, packed(weights), chosen, shape=(300, 5)
    )
    assert error(result, x.astype("f8") @ weights[17].T) < BOUND


def test_a_number_that_is_no_expert_takes_the_nearest() -> None:
    x, weights = normal(0, 3, 8), normal(1, 4, 5, 8)
    function = compiled(expert_linear, TILE, "float32")
    actual = call(function, x, packed(weights), np.array([-9, 4, 1 << 40]), shape=(3, 5))
    expected = np.stack([weights[0] @ x[0], weights[3] @ x[1], weights[3] @ x[2]])
    assert error(actual, expected) < 1e-6


def test_the_same_in_every_run() -> None:
    """Compute the same bits whatever the threads do."""
    x, weights = normal(0, 200, 64), normal(1, 6, 70, 64)
    chosen = np.random.default_rng(0).integers(0, 6, 200)
    function = compiled(expert_linear, TILE, "float32")
    first, second = (call(function, x, packed(weights), chosen, shape=(200, 70)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(("used", "n"), [(1, 1), (2, 21), (8, 64), (3, 172)])
def test_weighted_sum(used: int, n: int) -> None:
    function = compiled(weighted_sum, BACKEND)
    for rows in (1, 3, 130):
        x, shares = normal(0, rows, used, n), normal(1, rows, used)
        expected = np.einsum("rsn,rs->rn", x.astype("f8"), shares.astype("f8"))
        assert error(call(function, x, shares, shape=(rows, n)), expected) < BOUND
