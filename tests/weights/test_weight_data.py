"""Conversions of element types against NumPy and ml_dtypes."""

from __future__ import annotations

import gguf
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from maxtool.dtype import DType
from maxtool.errors import ModelMismatch
from maxtool.quantization import QuantizationEncoding, quantize
from maxtool.weights import WeightData

FLOATS = [dtype for dtype in DType if dtype.is_float()]


def weight(array: np.ndarray) -> WeightData:
    return WeightData.from_numpy(array, "a.weight")


@given(values=hnp.arrays(np.float32, 7, elements=st.floats(width=32)))
def test_bfloat16_rounds_as_ml_dtypes(values: np.ndarray) -> None:
    expected = values.astype(ml_dtypes.bfloat16)
    if np.isinf(expected[np.isfinite(values)].astype(np.float32)).any():
        return  # refused; tested below
    converted = weight(values).astype(DType.bfloat16)
    assert converted.dtype is DType.bfloat16
    np.testing.assert_array_equal(converted.data.view(np.uint16), expected.view(np.uint16))


@given(values=hnp.arrays(np.float32, 7, elements=st.floats(-65000, 65000, width=32)))
def test_float16_rounds_as_numpy(values: np.ndarray) -> None:
    converted = weight(values).astype(DType.float16).data
    expected = values.astype(np.float16)
    np.testing.assert_array_equal(converted.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("source", FLOATS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("target", FLOATS, ids=lambda dtype: dtype.name)
def test_every_pair_of_floats_converts_as_numpy_does(source: DType, target: DType) -> None:
    values = np.array([1, 2, 0.25, 8, 0.5]).astype(source.to_numpy())
    converted = weight(values).astype(target)
    assert (converted.dtype, converted.shape) == (target, (5,))
    # Through float32, which holds these values: ml_dtypes lacks some casts among 8-bit types.
    expected = values.astype(np.float32).astype(target.to_numpy())
    assert converted.data.tobytes() == expected.tobytes()


@pytest.mark.parametrize("source", [DType.int8, DType.uint16, DType.int64, DType.bool])
def test_integers_become_floats(source: DType) -> None:
    values = np.array([0, 1], source.to_numpy())
    assert weight(values).astype(DType.float32).data.tolist() == [0, 1]


def test_the_same_type_is_the_same_object() -> None:
    given_weight = weight(np.zeros(3, np.float32))
    assert given_weight.astype(DType.float32) is given_weight


OVERFLOWS = [
    (np.array([1, 70000, np.inf, -1e30], np.float32), DType.float16, "2 of 4 values"),
    (np.array([3.4e38], np.float32), DType.bfloat16, "1 of 1 values"),
    (np.array([1e300]), DType.float32, "1 of 1 values"),
    (np.array([500], np.float32), DType.float8_e4m3fn, "1 of 1 values"),
    (np.array([300, 5], np.int32), DType.int8, "1 of 2 values"),
    (np.array([-1], np.int8), DType.uint8, "1 of 1 values"),
    (np.array([1 << 63], np.uint64), DType.int64, "1 of 1 values"),
    (np.array([2, 1, 0], np.int8), DType.bool, "1 of 3 values"),
]


@pytest.mark.parametrize(("values", "dtype", "message"), OVERFLOWS)
def test_what_does_not_fit_is_refused(values: np.ndarray, dtype: DType, message: str) -> None:
    with pytest.raises(ModelMismatch, match=message) as caught:
        weight(values).astype(dtype)
    assert caught.value.tensor == "a.weight"


def test_infinity_and_nan_that_were_there_pass() -> None:
    values = np.array([np.inf, -np.inf, np.nan], np.float32)
    converted = weight(values).astype(DType.float16).data
    np.testing.assert_array_equal(converted, values.astype(np.float16))


def test_floats_never_become_integers() -> None:
    with pytest.raises(ModelMismatch, match="float32 cannot become int8"):
        weight(np.ones(2, np.float32)).astype(DType.int8)


def test_quantized_data_is_decoded() -> None:
    values = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    packed = quantize(values, QuantizationEncoding.Q8_0)
    expected = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType.Q8_0)
    given_weight = WeightData(packed, "q", DType.float32, (2, 64), QuantizationEncoding.Q8_0)
    decoded = given_weight.astype(DType.float32)
    assert (decoded.shape, decoded.quantization_encoding) == ((2, 64), None)
    np.testing.assert_array_equal(decoded.data, expected)
    half = given_weight.astype(DType.float16).data
    np.testing.assert_array_equal(half, expected.astype(np.float16))


def test_an_array_without_a_dtype_is_refused() -> None:
    with pytest.raises(ValueError, match="no DType"):
        weight(np.zeros(2, np.complex64))
