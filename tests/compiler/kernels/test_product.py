"""Products of matrices that are packed at run time, against float64, over sizes of every rest."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from maxtool.compiler.kernels.cpu.product import product

from .harness import TILE, call, compiled, error, normal

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
BOUND = 1e-6  # as for linear: rounding of sums in float32


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [False, True])
def test_product(dtype: str, transposed: bool) -> None:
    function = compiled(product, dtype, TILE, transposed)
    for batch, rows, k, n in [(1, 1, 1, 1), (1, 1, 200, 70), (3, 1, 64, 5), (2, 7, 65, 33)]:
        x, w = normal(rows, batch, rows, k), normal(n, batch, k, n).astype(DTYPES[dtype])
        laid = np.ascontiguousarray(w.swapaxes(1, 2) if transposed else w)
        stored = laid.view(np.uint16) if dtype == "bfloat16" else laid
        expected = x.astype("f8") @ w.astype("f8")
        assert error(call(function, x, stored, shape=(batch, rows, n)), expected) < BOUND


@pytest.mark.parametrize("transposed", [False, True])
def test_bias(transposed: bool) -> None:
    function = compiled(product, "float32", TILE, transposed, True)
    for rows in (1, 13):
        x, w, bias = normal(0, 2, rows, 40), normal(1, 2, 40, 37), normal(2, 37)
        laid = w.swapaxes(1, 2) if transposed else w
        actual = call(function, x, laid, bias, shape=(2, rows, 37))
        assert error(actual, x.astype("f8") @ w + bias) < BOUND


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("sizes", [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 4, 0), (1, 1, 4, 0)])
def test_nothing(transposed: bool, sizes: tuple[int, int, int, int]) -> None:
    batch, rows, k, n = sizes
    x, w = normal(0, batch, rows, k), normal(1, batch, *((n, k) if transposed else (k, n)))
    function = compiled(product, "float32", TILE, transposed)
    assert call(function, x, w, shape=(batch, rows, n)).shape == (batch, rows, n)


@pytest.mark.parametrize("rows", [1, 5])
def test_what_is_not_finite_stays_in_its_column(rows: int) -> None:
    x, w = np.abs(normal(0, 1, rows, 8)) + 1, normal(1, 1, 40, 8)
    w[0, 39, 2] = np.inf
    actual = call(compiled(product, "float32", TILE, True), x, w, shape=(1, rows, 40))
    assert np.isposinf(actual[..., 39]).all()
    assert np.isfinite(actual[..., :39]).all()
