"""Products and embeddings on GPUs, run without one, against NumPy."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.compiler.cuda.resources import Resources
from maxtool.compiler.kernels.cuda import gemv_products, linear, tiles
from maxtool.compiler.kernels.cuda.embedding import embedding
from maxtool.compiler.kernels.cuda.matrix import PIECE
from maxtool.compiler.kernels.cuda.round_activations import narrow
from maxtool.compiler.kernels.kernel_options import ChainEpilogue, adding
from maxtool.compiler.lowering.cuda.cuda_product_rules import WIDE
from tests.compiler.cuda.harness import TARGET, resources
from tests.effort import thinned
from tests.simt import Program, program, run

Array: TypeAlias = np.ndarray[Any, Any]

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
NARROW = ("float16", "bfloat16")
SHARED_MEMORY = 99 << 10
FEW = settings(max_examples=12, deadline=None)
dtypes = st.sampled_from(sorted(TYPES))
# Around the width of a piece, of a chunk, of a stage; nothing that divides anything.
terms = st.sampled_from([1, 4, 7, 8, 16, 24, 31, 33, 64, 65, 136, 172, 1032])
columns = st.one_of(st.integers(1, 40), st.sampled_from([64, 65, 130]))


def normal(seed: int, shape: tuple[int, ...], dtype: str) -> Array:
    random = np.random.default_rng(seed)
    return random.standard_normal(shape, np.float32).astype(TYPES[dtype])


def error(actual: Array, expected: Array) -> float:
    return float(np.linalg.norm(actual - expected) / max(np.linalg.norm(expected), 1e-30))


@cache
def product(dtype: str, **options: Any) -> Program:
    result = linear.linear(SHARED_MEMORY, dtype, **options)
    return program(result, shared_memory=SHARED_MEMORY)


def check(dtype: str, rows: int, n: int, k: int, batch: tuple[int, ...] = ()) -> None:
    """The kernel that the rules would ask for, against float64.

    It has a bias where n is a multiple of 3, and a residual where it is one of 5.
    """
    x, w = normal(0, (*batch, rows, k), dtype), normal(1, (*batch, n, k), dtype)
    bias = [normal(2, (n,), "float32")] * (n % 3 == 0)
    y = np.full((*batch, rows, n), np.nan, np.float32)
    sizes = {"aligned": k % PIECE[dtype] == 0, "fours": n % 4 == 0, "wide": n >= WIDE}
    more = [normal(3, y.shape, "float32")] * (n % 5 == 0)
    columns = (True,) * len(bias) + (False,) * len(more)
    after = ChainEpilogue(columns, adding(len(columns)))
    product(dtype, batched=bool(batch), after=after, **sizes)(x, w, *bias, *more, y)
    expected = x.astype("f8") @ np.swapaxes(w.astype("f8"), -1, -2) + sum(bias) + sum(more)
    assert not y.size or error(y, expected) < 1e-6


@pytest.mark.parametrize("rows", [0, 1, 5, 9, 17, 70])
@pytest.mark.parametrize(
    ("dtype", "n", "k"), [("bfloat16", 60, 136), ("float16", 35, 33), ("float32", 33, 35)]
)
def test_products(dtype: str, rows: int, n: int, k: int) -> None:
    check(dtype, rows, n, k)


@pytest.mark.parametrize("rows", [1, 17])
@pytest.mark.parametrize("dtype", sorted(TYPES))
def test_products_of_no_terms_are_zero(dtype: str, rows: int) -> None:
    for batch in ((), (2,)):
        check(dtype, rows, 64, 0, batch)


@pytest.mark.slow
@given(dtypes, st.integers(0, 150), columns, terms)
@settings(max_examples=60, deadline=None)
def test_products_of_any_size(dtype: str, rows: int, n: int, k: int) -> None:
    check(dtype, rows, n, k)


@pytest.mark.slow
@given(dtypes, st.integers(0, 3), st.sampled_from([1, 5, 70]), terms)
@FEW
def test_batches(dtype: str, batch: int, rows: int, k: int) -> None:
    check(dtype, rows, 60, k, (batch,))


def test_a_batch() -> None:
    check("float32", 5, 60, 33, (3,))


@pytest.mark.parametrize(
    ("dtype", "n"),
    thinned([("bfloat16", 264), ("float16", 300), ("float32", 260)], ("bfloat16", 264)),
)
def test_large_tiles(monkeypatch: pytest.MonkeyPatch, dtype: str, n: int) -> None:
    """Cover several tiles each way, none of them whole, and more stages than fit in memory."""
    monkeypatch.setattr(linear, "FULL", 1)
    monkeypatch.setattr("tests.compiler.cuda.test_products.product", product.__wrapped__)
    check(dtype, 150, n, 5 * tiles.DEPTH + 8)


def test_tiles_are_walked_once() -> None:
    """Cover more rows of tiles than are walked before the next column."""
    check("bfloat16", 64 * (linear.WALKED + 2) - 5, 130, 8)


def test_stages_fit_the_shared_memory() -> None:
    for memory in (99 << 10, 163 << 10, 227 << 10):
        for tile in linear.TILES:
            fitted = tile.within(memory)
            assert 2 <= fitted.stages <= tile.stages
            assert fitted.shared_memory <= memory


@given(st.sampled_from(NARROW), st.integers(0, 7), st.sampled_from([1, 3, 8, 33, 700]))
@FEW
def test_narrow(dtype: str, rows: int, dim: int) -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, (rows, dim), dtype=np.uint32)
    x = bits.view(np.float32)
    x[np.isnan(x)] = 0
    y = np.zeros((rows, dim), TYPES[dtype])
    run(narrow(dtype), x, y)
    with np.errstate(over="ignore"):
        expected = x.astype(TYPES[dtype])
    np.testing.assert_array_equal(y.view(np.uint16), expected.view(np.uint16))


@given(dtypes, st.integers(0, 5), st.sampled_from([1, 64, 1030]))
@FEW
def test_embedding(dtype: str, rows: int, dim: int) -> None:
    w = normal(0, (7, dim), dtype)
    ids = np.random.default_rng(0).choice([-(1 << 62), -1, 0, 3, 6, 7, 1 << 62], rows)
    y = np.full((rows, dim), np.nan, np.float32)
    run(embedding(7, dim, dtype), ids, w, y)
    np.testing.assert_array_equal(y, w[np.clip(ids, 0, 6)].astype(np.float32))


# Of each product: the kernels it has, how many threads each has, and how many blocks are to fit an
# SM by what they take of its registers. That of few rows fits as often as its shared memory does.
BLOCKS = {
    "bfloat16": [
        (gemv_products.THREADS, 2),
        *((tile.threads, n) for tile, n in zip(linear.TILES, (1, 4), strict=True)),
    ],
    "float32": [(gemv_products.THREADS, 2), (gemv_products.THREADS, 2), (256, 1), (256, 3)],
}
REGISTERS = 1 << 16  # of an SM


def check_resources(dtype: str, *, aligned: bool) -> dict[str, list[Resources]]:
    """Return the resources of a product's kernels on each architecture; none may spill."""
    sizes = {"aligned": aligned, "fours": aligned, "wide": True}
    result = linear.linear(TARGET.shared_memory, dtype, **sizes)
    results: dict[str, list[Resources]] = {}
    for name, one in resources({"made": result}):
        assert not one.spills, name
        assert not one.stack, name
        results.setdefault(name.split()[0], []).append(one)
    assert {len(each) for each in results.values()} == {len(TARGET.archs)}
    return dict(sorted(results.items()))


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float32", marks=pytest.mark.slow)])
def test_registers(dtype: str) -> None:
    """Registers are given to a warp eight by eight for each of its threads."""
    result = check_resources(dtype, aligned=True)
    assert len(result) == len(BLOCKS[dtype])
    for (name, each), (threads, blocks) in zip(result.items(), BLOCKS[dtype], strict=True):
        most = max(-(-one.registers // 8) * 8 for one in each)
        assert most * threads * blocks <= REGISTERS, name


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_registers_of_rows_that_are_not_aligned(dtype: str) -> None:
    check_resources(dtype, aligned=False)
