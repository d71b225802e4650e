"""Statistics against NumPy on whole arrays and against exact sums, for every type."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from hypothesis import given
from hypothesis import strategies as st

from maxtool.dtype import DType
from maxtool.quantization import QuantizationEncoding, quantize
from maxtool.weights import WeightData, open_checkpoint
from maxtool.weights.stats import Stats, measure, measure_array
from maxtool.weights.weight_elements import PART

GENERATOR = np.random.default_rng(5)


def of(array: np.ndarray[Any, Any]) -> Stats:
    return measure(WeightData.from_numpy(array, "w"))


def assert_like_numpy(stats: Stats, values: np.ndarray[Any, Any]) -> None:
    finite = values[np.isfinite(values)]
    assert stats.count == values.size
    assert stats.zeros == np.count_nonzero(finite == 0)
    assert stats.nans == np.count_nonzero(np.isnan(values))
    assert stats.infinities == np.count_nonzero(np.isinf(values))
    assert (stats.minimum, stats.maximum) == (finite.min(), finite.max())
    np.testing.assert_allclose(float(stats.mean), finite.mean(), rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(stats.std, finite.std(), rtol=1e-12)


FLOATS = [dtype for dtype in DType if dtype.is_float() and dtype is not DType.float8_e8m0fnu]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [1, 1000, PART, 3 * PART + 17])
def test_floats(dtype: DType, size: int) -> None:
    values = (GENERATOR.standard_normal(size) * 4).astype(dtype.to_numpy())
    assert_like_numpy(of(values), values.astype(np.float64))


def test_every_bit_pattern_of_the_narrow_floats() -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn):
        bits = np.dtype(dtype).itemsize * 8
        values = np.arange(1 << bits, dtype=f"u{bits // 8}").view(dtype)
        with np.errstate(invalid="ignore"):  # signalling NaN
            wide = values.astype(np.float64)
        assert_like_numpy(of(values), wide)


def test_powers_of_two_have_no_zero() -> None:
    values = np.arange(255, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu)
    result = of(values)
    assert (result.minimum, result.maximum, result.zeros) == (2.0**-127, 2.0**127, 0)


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_integral()])
def test_integers(dtype: DType) -> None:
    limits = np.iinfo(dtype.to_numpy())
    values = GENERATOR.integers(limits.min, limits.max, 5000, dtype.to_numpy(), endpoint=True)
    values[:2] = limits.min, limits.max
    result = of(values)
    assert (result.minimum, result.maximum) == (limits.min, limits.max)
    assert type(result.maximum) is int
    exact = Fraction(sum(int(value) for value in values), 5000)
    assert math.isclose(result.mean, exact, rel_tol=1e-12, abs_tol=limits.max * 1e-13)


def test_booleans_count_as_numbers() -> None:
    result = of(np.array([True, False, True, True]))
    assert (result.minimum, result.maximum, result.zeros, result.mean) == (0, 1, 1, 0.75)


def test_a_large_mean_hides_no_deviation() -> None:
    """Sums of squares would lose these digits, and float32 would stop counting at 2^24."""
    size = (1 << 24) + 12345
    values = np.full(size, 1e4, np.float32)
    values[::2] += np.float32(0.0009765625)
    result = of(values)
    exact = math.fsum([1e4 * (size // 2), (1e4 + 0.0009765625) * (size - size // 2)]) / size
    assert math.isclose(result.mean, exact, rel_tol=1e-15)
    assert math.isclose(result.std or 0, 0.00048828125, rel_tol=1e-9)


def test_float64_of_any_size_does_not_overflow() -> None:
    result = of(np.array([1.7e308, 1.7e308, 1.5e308]))
    assert math.isclose(result.mean, (1.7e308 + (1.5e308 - 1.7e308) / 3), rel_tol=1e-12)
    assert result.std is not None
    assert math.isfinite(result.std)


def test_nothing_finite() -> None:
    result = of(np.array([np.nan, np.inf, -np.inf], np.float32)).as_dict()
    assert result == {
        "count": 3,
        "min": None,
        "max": None,
        "mean": None,
        "std": None,
        "zeros": 0,
        "nan": 1,
        "inf": 2,
    }
    assert of(np.empty((0, 4), np.float32)).as_dict()["mean"] is None


@given(st.lists(st.floats(width=32), max_size=40), st.integers(0, 40))
def test_parts_add_up(values: list[float], cut: int) -> None:
    array = np.array(values, np.float32)
    with np.errstate(all="ignore"):
        whole = measure_array(array)
        sums = measure_array(array[:cut]) + measure_array(array[cut:])
    assert (whole.count, whole.zeros, whole.nans) == (sums.count, sums.zeros, sums.nans)
    assert (whole.minimum, whole.maximum) == (sums.minimum, sums.maximum)
    if whole.finite:
        largest = max(abs(value) for value in values if math.isfinite(value))
        assert math.isclose(whole.mean, sums.mean, rel_tol=1e-9, abs_tol=largest * 1e-12)
        assert math.isclose(whole.std or 0, sums.std or 0, rel_tol=1e-6, abs_tol=largest * 1e-7)


QUANTIZED = ["Q4_0", "Q5_1", "Q8_0", "Q4_K", "Q6_K", "IQ4_XS"]


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_data_is_decoded_as_the_gguf_package_does(name: str) -> None:
    encoding = QuantizationEncoding[name]
    blocks = 2 * PART // encoding.elements_per_block + 3
    packed = GENERATOR.integers(0, 64, (blocks, encoding.block_size), np.uint8)
    weight = WeightData(
        packed.reshape(1, -1),
        "w",
        DType.float32,
        (1, blocks * encoding.elements_per_block),
        encoding,
    )
    expected = quants.dequantize(packed, GGMLQuantizationType(encoding.gguf_id))
    assert_like_numpy(measure(weight), expected.astype(np.float64).reshape(-1))


def test_progress_adds_up_to_the_payload() -> None:
    values = GENERATOR.standard_normal((3, 1 << 20)).astype(np.float32)
    packed = quantize(values, QuantizationEncoding.Q8_0)
    weight = WeightData(packed, "w", DType.float32, values.shape, QuantizationEncoding.Q8_0)
    for one in (WeightData.from_numpy(values, "w"), weight):
        done: list[int] = []
        measure(one, done.append)
        assert sum(done) == one.data.nbytes


def test_unaligned_data_is_read_part_by_part(tmp_path: Path) -> None:
    values = GENERATOR.standard_normal(1000).astype(np.float32)
    header = b'{"w":{"dtype":"F32","shape":[1000],"data_offsets":[0,4000]}}  '
    assert len(header) % 4
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + values.tobytes())
    checkpoint = open_checkpoint(path)
    assert checkpoint.view("w").data.flags.aligned
    assert_like_numpy(measure(checkpoint.stored("w")), values.astype(np.float64))
