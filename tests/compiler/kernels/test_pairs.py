"""Products of pairs of bfloat16: by an instruction if this machine has one, and written out."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from maxtool.compiler.cpu_target import RegisterTile, cpu_target
from maxtool.compiler.kernels.cpu import builder
from maxtool.compiler.kernels.cpu.embedding import embedding
from maxtool.compiler.kernels.cpu.experts import expert_linear
from maxtool.compiler.kernels.cpu.float_dot import PAIRS
from maxtool.compiler.kernels.cpu.linear import linear
from maxtool.compiler.kernels.cpu.linear_product import BLOCK
from maxtool.compiler.packing import pack_linear
from maxtool.parity.activation_rounding import rounded_to_bfloat16
from tests.effort import thinned

from .harness import TILE, call, compiled, error, normal

# As in test_linear: rounding of sums in float32.
BOUND = 1e-6
WRITTEN_OUT = replace(TILE, pairs=None)
TILES = [TILE, WRITTEN_OUT] if TILE.pairs else [WRITTEN_OUT]
IDS = [tile.pairs or "written out" for tile in TILES]
ROWS = (1, 2, 11, 13, 130)
# A CPU with each set, and its instruction.
CPUS = {"avx512bf16": ("znver4", "vdpbf16ps"), "bf16": ("neoverse-v1", "bfdot")}

tiles = pytest.mark.parametrize("tile", TILES, ids=IDS)


def packed(w: np.ndarray) -> np.ndarray:
    """A matrix in pairs of terms, as its bits."""
    return pack_linear(w.astype(ml_dtypes.bfloat16), TILE.nr, 2).view(np.uint16)


def product(tile: RegisterTile, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    function = compiled(linear, tile, "bfloat16", terms=2)
    return call(function, x, packed(w), shape=(len(x), len(w)))


@tiles
@pytest.mark.parametrize("n", thinned([1, 5, 32, 40, 172], 5, 40))
@pytest.mark.parametrize("k", [1, 2, 3, 64, 171, 2 * BLOCK + 7])
def test_several_rows_are_rounded_and_one_is_not(tile: RegisterTile, n: int, k: int) -> None:
    w = normal(0, n, k).astype(ml_dtypes.bfloat16)
    for rows in ROWS:
        x = normal(rows, rows, k)
        multiplied = x.astype("f8") if rows == 1 else rounded_to_bfloat16(x)
        actual, wide = product(tile, x, w), w.astype("f8")
        largest = np.abs(multiplied) @ np.abs(wide).T  # sums of one column may cancel
        assert (np.abs(actual - multiplied @ wide.T) <= BOUND * largest).all()


@tiles
def test_whole_numbers_are_exact(tile: RegisterTile) -> None:
    """Products of whole numbers, and their sums: any set gives the same bits."""
    rng = np.random.default_rng(1)
    w = rng.integers(-256, 257, (40, 75)).astype("f4")
    for rows in ROWS:
        x = rng.integers(-256, 257, (rows, 75)).astype("f4")
        np.testing.assert_array_equal(product(tile, x, w), x @ w.T)


@tiles
@pytest.mark.parametrize("rows", [1, 5])
def test_what_is_not_finite_stays_in_its_row_and_column(tile: RegisterTile, rows: int) -> None:
    """Zeros fill up an odd number of terms on both sides, and never meet an infinity."""
    w = normal(2, 40, 9)
    w[33, 2] = np.inf
    x = np.abs(normal(3, rows + 1, 9)) + 1
    x[-1, 3] = np.nan
    x[0, 8] = -np.inf
    for part in (x[:1], x[-1:]) if rows == 1 else (x,):
        with np.errstate(invalid="ignore"):
            expected = part @ w.astype(ml_dtypes.bfloat16).astype("f4").T
        actual = product(tile, part, w)
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
        np.testing.assert_array_equal(np.isinf(actual) * np.sign(actual), expected_signs(expected))


def expected_signs(values: np.ndarray) -> np.ndarray:
    return np.isinf(values) * np.sign(values)


@tiles
def test_subnormal_numbers_may_be_zeros(tile: RegisterTile) -> None:
    tiny = np.float32(2.0**-130)
    x, w = np.full((3, 6), tiny), np.full((5, 6), 2.0**100, "f4")
    actual = product(tile, x, w)
    assert ((actual == 0) | (actual == 6 * tiny * 2.0**100)).all()
    assert not product(tile, np.full((3, 6), tiny), np.full((5, 6), tiny)).any()


@tiles
def test_no_rows(tile: RegisterTile) -> None:
    assert product(tile, np.zeros((0, 3), "f4"), normal(4, 5, 3)).shape == (0, 5)


@tiles
@pytest.mark.parametrize("k", [1, 21, 64])
def test_experts(tile: RegisterTile, k: int) -> None:
    function = compiled(expert_linear, tile, "bfloat16", 2)
    weights = normal(5, 3, 37, k).astype(ml_dtypes.bfloat16)
    laid = np.stack([packed(weight) for weight in weights])
    x = normal(6, 60, k)
    chosen = np.where(np.arange(60) < 1, 2, np.arange(60) % 2)
    actual = call(function, x, laid, chosen, shape=(60, 37))
    alone = np.bincount(chosen)[chosen] == 1
    multiplied = np.where(alone[:, None], x.astype("f8"), rounded_to_bfloat16(x))
    expected = np.einsum("rk,rnk->rn", multiplied, weights.astype("f8")[chosen])
    assert error(actual, expected) < BOUND


@pytest.mark.parametrize(("vocab", "dim"), [(1, 1), (37, 21), (64, 32)])
def test_rows_of_a_table(vocab: int, dim: int) -> None:
    table = normal(7, vocab, dim).astype(ml_dtypes.bfloat16)
    function = compiled(embedding, TILE, vocab, dim, "bfloat16", TILE.nr, 2)
    ids = np.array([0, vocab - 1, vocab // 2, -1, vocab])
    actual = call(function, ids, packed(table), shape=(5, dim))
    np.testing.assert_array_equal(actual, table[np.clip(ids, 0, vocab - 1)].astype("f4"))


@pytest.mark.parametrize("name", PAIRS)
def test_the_code_has_the_instruction(name: str) -> None:
    cpu, instruction = CPUS[name]
    target = cpu_target(f"cpu:{cpu}")
    assert target.tile.pairs == name
    module = builder.build({"kernel": linear(target.tile, "bfloat16", terms=2)}, target.tvm)
    assert f"\t{instruction}\t" in module.mod.inspect_source("asm")
