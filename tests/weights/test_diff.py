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
from maxtool.weights.diff import Difference, apart, compare
from maxtool.weights.formats import gguf
from maxtool.weights.weight_elements import PART


def made(path: Path, **arrays: np.ndarray[Any, Any]) -> Checkpoint:
    safetensors.numpy.save_file(arrays, path)
    return open_checkpoint(path)


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
    assert difference.largest == expected.max()
    assert difference.at == np.unravel_index(expected.argmax(), (4, 64))
    assert difference.differing == np.count_nonzero(expected)


CASES: list[tuple[WeightData, WeightData, int, float, tuple[int, ...] | None]] = [
    (weight([1, 2]), weight([1, 2]), 0, 0.0, None),
    (weight([1, 2]), weight([1, 2.5]), 1, 0.5, (1,)),
    (weight([0.0, -0.0]), weight([-0.0, 0.0]), 0, 0.0, None),
    (weight([math.nan, 1]), weight([math.nan, 1]), 0, 0.0, None),
    (weight([math.nan, 1]), weight([3, 1]), 1, math.inf, (0,)),
    (weight([math.inf, 1]), weight([math.inf, 3]), 1, 2.0, (1,)),
    (weight([math.inf]), weight([-math.inf]), 1, math.inf, (0,)),
    (weight(7), weight(5), 1, 2.0, ()),
    (weight([]), weight([]), 0, 0.0, None),
    (weight([True, False], bool), weight([True, True], bool), 1, 1.0, (1,)),
    (weight([2**53], np.int64), weight([2**53 + 1], np.int64), 1, 0.0, (0,)),
    (weight([0], np.uint8), weight([255], np.uint8), 1, 255.0, (0,)),
    (weight([1.5], ml_dtypes.bfloat16), weight([1.25], np.float16), 1, 0.25, (0,)),
    (weight([1], ml_dtypes.float8_e4m3fn), weight([2], ml_dtypes.float8_e5m2), 1, 1.0, (0,)),
]


@pytest.mark.parametrize(("left", "right", "differing", "largest", "at"), CASES)
def test_values(
    left: WeightData,
    right: WeightData,
    differing: int,
    largest: float,
    at: tuple[int, ...] | None,
) -> None:
    expected = Difference("w", left.data.size, differing, largest, at)
    assert apart(left, right) == expected


@given(st.integers(0, 2 * PART + 4), st.integers(0, 2 * PART + 4))
def test_the_first_of_the_largest_is_found(one: int, other: int) -> None:
    left = np.zeros(2 * PART + 5, np.float32)
    right = left.copy()
    right[one] = right[other] = 3
    result = apart(weight(left), weight(right))
    assert result.at == (min(one, other),)
    assert result.differing == len({one, other})
