"""Packed weights: every element in its place, zeros beyond, little memory."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxtool.compiler import packing
from maxtool.compiler.packing import pack_linear, packed_shape
from tests.compiler.unpacking import unpacked

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.float64, np.uint16]
SIZES = st.integers(1, 70)


def weight(n: int, k: int, dtype: object = np.float32) -> np.ndarray:
    return np.random.default_rng(n * 100 + k).integers(1, 200, (n, k)).astype(dtype)


@given(SIZES, SIZES, st.sampled_from([1, 8, 16, 32]), st.sampled_from(DTYPES))
def test_every_element_is_in_its_place(n: int, k: int, nr: int, dtype: object) -> None:
    w = weight(n, k, dtype)
    packed = pack_linear(w, nr)
    assert packed.shape == packed_shape(n, k, nr)
    assert packed.dtype == w.dtype
    column, depth = np.divmod(np.arange(n * k), k)
    np.testing.assert_array_equal(packed[column // nr, depth, column % nr], w.reshape(-1))
    assert np.count_nonzero(packed.astype("f8")) == n * k  # the weight has no zeros


@given(SIZES, SIZES, st.sampled_from([1, 8, 32]), st.sampled_from([np.float32, np.uint16]))
def test_terms_lie_side_by_side(n: int, k: int, nr: int, dtype: object) -> None:
    w = weight(n, k, dtype)[:, ::-1]
    packed = pack_linear(w, nr, 2)
    assert packed.shape == packed_shape(n, k, nr, 2) == (-(-n // nr), -(-k // 2), nr, 2)
    assert packed.dtype == w.dtype
    np.testing.assert_array_equal(unpacked(packed, n, k), w)
    assert np.count_nonzero(packed) == n * k


def test_strided_sources_and_a_place_to_write() -> None:
    w = weight(80, 40)[::2, ::-1]
    out = np.full(packed_shape(40, 40, 16), np.nan, "f4")
    assert pack_linear(w, 16, out=out) is out
    np.testing.assert_array_equal(unpacked(out, 40), w)
    assert not out[2, :, 8:].any()


def test_pieces_of_any_size_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "CHUNK", 3 * 8 * 5 * 4)  # three blocks at a time
    w = weight(8 * 7 + 3, 5)
    np.testing.assert_array_equal(unpacked(pack_linear(w, 8), len(w)), w)


def test_memory_beyond_the_output_is_bounded() -> None:
    w = np.ones((4096, 1024), "f4")
    out = np.empty(packed_shape(4096, 1024, 32), "f4")
    tracemalloc.start()
    pack_linear(w[:, ::-1], 32, out=out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= packing.CHUNK + (1 << 20)


@pytest.mark.parametrize(
    ("shape", "out"),
    [((4,), None), ((2, 2, 2), None), ((4, 4), np.empty((1, 4, 4), "f4"))],
)
def test_what_does_not_fit_is_refused(shape: tuple[int, ...], out: np.ndarray | None) -> None:
    with pytest.raises(ValueError, match=r"dimensions|packed"):
        pack_linear(np.ones(shape, "f4"), 8, out=out)
