"""Two checkpoints compared: names, types, shapes, values."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from maxtool.dtype import DType
from maxtool.quantization import QuantizationEncoding, dequantize, quantize
from maxtool.weights import Checkpoint, TensorSpec, WeightData, open_checkpoint
from maxtool.weights.diff import compare
from maxtool.weights.distance import Distance, apart
from maxtool.weights.formats import gguf
from maxtool.weights.weight_elements import PART, FlatElements


def made(path: Path, **arrays: np.ndarray[Any, Any]) -> Checkpoint:
    safetensors.numpy.save_file(arrays, path)
    return open_checkpoint(path)


def distance(left: WeightData, right: WeightData) -> Distance:
    return apart(FlatElements(left), FlatElements(right))


def weight(values: Any, dtype: Any = np.float32) -> WeightData:
    return WeightData.from_numpy(np.asarray(values, dtype), "w")


def test_names_types_and_shapes(tmp_path: Path) -> None:
    left = made(
        tmp_path / "a.safetensors",
        same=np.zeros(3, np.float32),
        a=np.zeros(1, np.float32),
        type=np.zeros(2, np.float16),
        shape=np.zeros((2, 3), np.float32),
    )
    right = made(
        tmp_path / "b.safetensors",
        same=np.ones(3, np.float32),
        b=np.zeros(1, np.float32),
        type=np.zeros(2, ml_dtypes.bfloat16),
        shape=np.zeros((3, 2), np.float32),
    )
    result = compare(left, right)
    assert [tensor.name for tensor in result.only_left] == ["a"]
    assert [tensor.name for tensor in result.only_right] == ["b"]
    assert [one.name for one, _ in result.changed] == ["shape", "type"]
    assert (result.same, result.equal, result.differences) == (1, False, ())
    assert compare(left, right, pattern="s*e").equal is False
    assert compare(left, right, pattern="same").equal
    assert not compare(left, right, pattern="same", values=True).equal
    assert compare(left, left, values=True).equal


def test_quantized_values_are_compared_decoded(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    packed = quantize(values, QuantizationEncoding.Q8_0)
    spec = TensorSpec("w", DType.float32, (4, 64), QuantizationEncoding.Q8_0)
    gguf.write(tmp_path / "q.gguf", [spec], [packed], {})
    gguf.write(tmp_path / "f.gguf", [TensorSpec("w", DType.float32, (4, 64))], [values], {})
    both = [open_checkpoint(tmp_path / name) for name in ("q.gguf", "f.gguf")]
    actual = compare(*both, values=True)
    expected = np.abs(dequantize(packed, QuantizationEncoding.Q8_0).astype(np.float64) - values)
    (difference,) = actual.differences
    distance = difference.distance
    assert distance.largest == expected.max()
    assert difference.at == np.unravel_index(expected.argmax(), (4, 64))
    assert distance.differing == np.count_nonzero(expected)
    assert distance.rmse == pytest.approx(math.sqrt(np.mean(expected**2)), rel=1e-12)


CASES: list[tuple[WeightData, WeightData, int, float, int | None]] = [
    (weight([1, 2]), weight([1, 2]), 0, 0.0, None),
    (weight([1, 2]), weight([1, 2.5]), 1, 0.5, 1),
    (weight([0.0, -0.0]), weight([-0.0, 0.0]), 0, 0.0, None),
    (weight([math.nan, 1]), weight([math.nan, 1]), 0, 0.0, None),
    (weight([math.nan, 1]), weight([3, 1]), 1, math.inf, 0),
    (weight([math.inf, 1]), weight([math.inf, 3]), 1, 2.0, 1),
    (weight([math.inf]), weight([-math.inf]), 1, math.inf, 0),
    (weight(7), weight(5), 1, 2.0, 0),
    (weight([]), weight([]), 0, 0.0, None),
    (weight([True, False], bool), weight([True, True], bool), 1, 1.0, 1),
    (weight([2**53], np.int64), weight([2**53 + 1], np.int64), 1, 0.0, 0),
    (weight([0], np.uint8), weight([255], np.uint8), 1, 255.0, 0),
    (weight([1.5], ml_dtypes.bfloat16), weight([1.25], np.float16), 1, 0.25, 0),
    (weight([1], ml_dtypes.float8_e4m3fn), weight([2], ml_dtypes.float8_e5m2), 1, 1.0, 0),
]


@pytest.mark.parametrize(("left", "right", "differing", "largest", "at"), CASES)
def test_values(
    left: WeightData,
    right: WeightData,
    differing: int,
    largest: float,
    at: int | None,
) -> None:
    actual = distance(left, right)
    assert (actual.elements, actual.differing) == (left.data.size, differing)
    assert actual.largest == largest
    assert actual.at == at


@given(st.integers(0, 2 * PART + 4), st.integers(0, 2 * PART + 4))
def test_the_first_of_the_largest_is_found(one: int, other: int) -> None:
    left = np.zeros(2 * PART + 5, np.float32)
    right = left.copy()
    right[one] = right[other] = 3
    result = distance(weight(left), weight(right))
    assert result.at == min(one, other)
    assert result.differing == len({one, other})


@given(st.integers(0, 10 * PART), st.integers(0, 99))
def test_sums_are_those_of_all_elements(size: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    left, right = random.standard_normal((2, size)).astype(np.float32) + np.float32(5)
    actual, wide = distance(weight(left), weight(right)), np.longdouble
    apart_by = left.astype(wide) - right.astype(wide)
    rms = np.sqrt(np.mean(np.square(left.astype(wide)))) if size else wide(1)
    rmse = np.sqrt(np.mean(np.square(apart_by))) if size else wide(0)
    assert actual.rmse == pytest.approx(float(rmse), rel=1e-13)
    assert actual.relative == pytest.approx(float(rmse / rms), rel=1e-13)
    if size:
        lengths = np.sqrt(np.square(left.astype(wide)).sum() * np.square(right.astype(wide)).sum())
        cosine = float((left.astype(wide) * right.astype(wide)).sum() / lengths)
        assert actual.cosine == pytest.approx(cosine, rel=1e-13)


def test_pairs_together_are_one_long_pair() -> None:
    random = np.random.default_rng(3)
    left, right = random.standard_normal((2, 1000)).astype(np.float32)
    halves = [distance(weight(left[s]), weight(right[s])) for s in (slice(400), slice(400, None))]
    whole, together = distance(weight(left), weight(right)), sum(halves, Distance())
    assert (together.elements, together.differing) == (whole.elements, whole.differing)
    assert together.largest == whole.largest
    assert together.rmse == pytest.approx(whole.rmse, rel=1e-14)
    assert together.cosine == pytest.approx(whole.cosine, rel=1e-14)


# Two weights, and their RMSE, relative error and cosine.
ODD: list[tuple[WeightData, WeightData, float, float, float | None]] = [
    (weight([]), weight([]), 0.0, 0.0, None),
    (weight([0, 0]), weight([0, 0]), 0.0, 0.0, None),
    (weight([0, 0]), weight([0, 2]), math.sqrt(2), math.inf, None),
    (weight([3, 4]), weight([0, 0]), math.sqrt(12.5), 1.0, None),
    (weight([3, 4]), weight([3, 4]), 0.0, 0.0, 1.0),
    (weight([3, 4]), weight([-3, -4]), math.sqrt(50), 2.0, -1.0),
    (weight([math.nan, 2]), weight([math.nan, 2]), 0.0, 0.0, 1.0),
    (weight([math.nan, 2]), weight([1, 2]), math.inf, math.inf, 1.0),
    (weight([math.inf, 2]), weight([math.inf, 1]), math.sqrt(0.5), 0.5, 1.0),
    (weight([3e200, 4e200], np.float64), weight([6e200, 8e200], np.float64), 0, 1.0, 1.0),
]


@pytest.mark.parametrize(("left", "right", "rmse", "relative", "cosine"), ODD)
def test_zeros_and_what_is_not_finite(
    left: WeightData, right: WeightData, rmse: float, relative: float, cosine: float | None
) -> None:
    actual = distance(left, right)
    if rmse or not relative:
        assert actual.rmse == pytest.approx(rmse)
    assert actual.relative == pytest.approx(relative)
    assert actual.cosine == (cosine if cosine is None else pytest.approx(cosine))
