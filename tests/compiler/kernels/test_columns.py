"""Packing at run time, and products of batches, against float64, over sizes of every rest."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from maxtool.compiler.kernels.cpu.linear import linear
from maxtool.compiler.kernels.cpu.pack_columns import pack_columns
from tests.compiler.unpacking import unpacked

from .harness import TILE, call, compiled, error, normal

BOUND = 1e-6  # as for one matrix: rounding of sums in float32


def packed(w: np.ndarray, *, transposed: bool) -> np.ndarray:
    """[batch, k, n] in blocks of columns, by the kernel."""
    batch, k, n = w.shape
    laid = np.ascontiguousarray(w.swapaxes(1, 2) if transposed else w)
    function = compiled(pack_columns, TILE, "float32", transposed)
    return call(function, laid, shape=(batch, -(-n // TILE.nr), k, TILE.nr))


@pytest.mark.parametrize("transposed", [False, True])
def test_columns_are_packed_and_the_last_one_repeats(transposed: bool) -> None:
    for batch, k, n in [(1, 1, 1), (2, 3, 5), (1, 4, TILE.nr), (3, 2, 2 * TILE.nr + 1)]:
        w = normal(n, batch, k, n)
        blocks = packed(w, transposed=transposed)
        columns = blocks.transpose(0, 2, 1, 3).reshape(batch, k, -1)
        np.testing.assert_array_equal(columns[..., :n], w)
        np.testing.assert_array_equal(columns[..., n:], w[..., -1:].repeat(-n % TILE.nr, axis=2))


@pytest.mark.parametrize("transposed", [False, True])
def test_pairs_of_terms_lie_side_by_side(transposed: bool) -> None:
    function = compiled(pack_columns, TILE, "float32", transposed, 2)
    for batch, k, n in [(1, 1, 1), (2, 3, 5), (1, 4, TILE.nr), (3, 5, 2 * TILE.nr + 1)]:
        w = normal(n, batch, k, n)
        laid = np.ascontiguousarray(w.swapaxes(1, 2) if transposed else w)
        blocks = call(function, laid, shape=(batch, -(-n // TILE.nr), -(-k // 2), TILE.nr, 2))
        for packed_matrix, matrix in zip(blocks, w, strict=True):
            np.testing.assert_array_equal(unpacked(packed_matrix, n, k), matrix.T)
            assert not unpacked(packed_matrix, n)[:, k:].any()


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 1, 64, 5), (2, 7, 65, 33), (5, 30, 9, 70)])
def test_batches(sizes: tuple[int, int, int, int]) -> None:
    batch, rows, k, n = sizes
    function = compiled(linear, TILE, "float32", False, True)
    x, w = normal(0, batch, rows, k), normal(1, batch, k, n)
    actual = call(function, x, packed(w, transposed=True), shape=(batch, rows, n))
    assert error(actual, x.astype("f8") @ w) < BOUND


def test_batches_of_short_weights_with_a_bias() -> None:
    function = compiled(linear, TILE, "bfloat16", True, True)
    w, bias = normal(1, 2, 40, 37).astype(ml_dtypes.bfloat16), normal(2, 37)
    bits = packed(w.astype("f4"), transposed=False).astype(ml_dtypes.bfloat16).view(np.uint16)
    for rows in (1, 13):
        x = normal(0, 2, rows, 40)
        actual = call(function, x, bits, bias, shape=(2, rows, 37))
        assert error(actual, x.astype("f8") @ w.astype("f8") + bias) < BOUND


@pytest.mark.parametrize("sizes", [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 4, 0), (1, 1, 4, 0)])
def test_nothing(sizes: tuple[int, int, int, int]) -> None:
    batch, rows, k, n = sizes
    function = compiled(linear, TILE, "float32", False, True)
    blocks = packed(normal(1, batch, k, n), transposed=False)
    assert call(function, normal(0, batch, rows, k), blocks, shape=(batch, rows, n)).size == 0
