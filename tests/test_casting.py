"""Casts against NumPy and ml_dtypes, bit for bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maxtool import casting
from maxtool.casting import CHUNK_ELEMENTS, cast, oddities, widen
from maxtool.dtype import DType

EVERY_16_BITS = np.arange(1 << 16, dtype=np.uint16)
WIDE = [DType.float16, DType.bfloat16, DType.float32]


def expected_bits(values: np.ndarray, dtype: DType) -> bytes:
    with np.errstate(all="ignore"):
        return values.astype(dtype.to_numpy()).tobytes()


def finite(values: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):  # signalling NaN
        return np.asarray(np.isfinite(values))


def near_boundaries() -> np.ndarray:
    """float32 values at, just below and just above every float16, its halves and its quarters."""
    with np.errstate(all="ignore"):
        halves = EVERY_16_BITS[:0x7C00].view(np.float16).astype(np.float32)
    between = (halves[:-1] + halves[1:]) / 2
    quarter = (halves[:-1] + between) / 2
    points = np.concatenate([halves, between, quarter]).view(np.int32)
    near = np.concatenate([points, points + 1, np.maximum(points - 1, 0)]).view(np.float32)
    return np.concatenate([near, -near])


def test_float16_rounds_as_numpy_at_every_boundary() -> None:
    values = near_boundaries()
    assert cast(values, DType.float16)[0].tobytes() == expected_bits(values, DType.float16)


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
@example(0x477FEFFF, 1)
@example(0x477FF000, 1)
@example(0x7F800001, 1)
@example(0xFFC12345, 1)
def test_every_float32_becomes_the_float16_of_numpy(bits: int, count: int) -> None:
    values = np.full(count, bits, np.uint32).view(np.float32)
    converted, lost = cast(values, DType.float16)
    assert converted.tobytes() == expected_bits(values, DType.float16)
    assert lost == (count if np.isfinite(values[0]) and np.isinf(converted[0]) else 0)


@pytest.mark.parametrize("source", [DType.float16, DType.bfloat16])
@pytest.mark.parametrize("target", [*WIDE, DType.float64])
def test_every_16_bit_float_becomes_what_numpy_makes_of_it(source: DType, target: DType) -> None:
    values = EVERY_16_BITS.view(source.to_numpy())
    for chunk in (values, values[finite(values)], values[:100]):
        converted, lost = cast(chunk, target)
        if source is target:
            assert converted.tobytes() == chunk.tobytes()
        else:
            assert converted.tobytes() == expected_bits(chunk, target)
        assert lost == np.count_nonzero(~finite(converted) & finite(chunk))


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_float() and d.size_in_bytes == 1])
@pytest.mark.parametrize("target", WIDE)
def test_every_8_bit_float_widens_exactly(dtype: DType, target: DType) -> None:
    values = np.arange(256, dtype=np.uint8).view(dtype.to_numpy())
    wide = values.astype(np.float32)
    converted, _ = cast(values, target)
    assert converted.tobytes() == expected_bits(wide, target)


def test_chunks_change_nothing() -> None:
    count = 20 * CHUNK_ELEMENTS + 76
    values = np.random.default_rng(0).standard_normal(count).astype(ml_dtypes.bfloat16)
    values[[0, count // 2, -1]] = 1e38
    converted, lost = cast(values.reshape(4, -1), DType.float16)
    assert (converted.shape, lost) == ((4, count // 4), 3)
    assert converted.tobytes() == expected_bits(values, DType.float16)


def test_arrays_in_any_order_keep_their_shape() -> None:
    values = np.random.default_rng(0).standard_normal((5, 7, 3)).astype(np.float32)
    for view in (values.T, values[:, ::2], values[0, 0, 0], values[:0]):
        converted, _ = cast(np.asarray(view), DType.float16)
        np.testing.assert_array_equal(converted, view.astype(np.float16))


def test_widening_float32_copies_nothing() -> None:
    values = np.zeros(3, np.float32)
    assert widen(values) is values


@example(b"\x81\x7f" * 8, 2)
@given(st.binary(min_size=16, max_size=16), st.sampled_from([2, 4, 8]))
def test_oddities(raw: bytes, size: int) -> None:
    kinds = {2: [np.float16, ml_dtypes.bfloat16], 4: [np.float32], 8: [np.float64]}[size]
    for kind in kinds:
        array = np.frombuffer(raw, kind)
        with np.errstate(invalid="ignore"):  # signalling NaN
            result = {"NaN": np.isnan(array).any(), "infinity": np.isinf(array).any()}
        assert oddities(array) == {name for name, there in result.items() if there}


def test_oddities_are_found_in_any_chunk() -> None:
    values = np.zeros(3 * CHUNK_ELEMENTS, np.float16)
    assert oddities(values) == set()
    values[-1] = np.nan
    assert oddities(values) == {"NaN"}
    values[0] = -np.inf
    assert oddities(values) == {"NaN", "infinity"}


def test_the_fast_casts_are_used() -> None:
    """The tables above would pass with NumPy's casts too."""
    values = np.ones(4, np.float32)
    assert casting._narrow_to_half(values, np.empty(4, np.float16))
    assert casting._widen_half(values.astype(np.float16), np.empty(4, np.float32))
