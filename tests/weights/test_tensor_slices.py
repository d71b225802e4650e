"""Slices as a user writes them, against NumPy's indexing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.errors import UsageError
from maxtool.quantization import QuantizationEncoding, dequantize, quantize
from maxtool.weights import WeightData
from maxtool.weights.tensor_slices import parse, take

ARRAY = np.arange(3 * 4 * 64, dtype=np.float32).reshape(3, 4, 64)
PLAIN = WeightData.from_numpy(ARRAY, "w")
Q8 = QuantizationEncoding.Q8_0
PACKED = WeightData(quantize(ARRAY, Q8), "w", DType.float32, ARRAY.shape, Q8)

INDICES: dict[str, Any] = {
    "": ...,
    "[0]": 0,
    "[-1]": -1,
    "[0:2]": np.s_[0:2],
    "[:, 1]": np.s_[:, 1],
    "[..., 5]": np.s_[..., 5],
    "[..., -3:]": np.s_[..., -3:],
    "[2, 3, 63]": np.s_[2, 3, 63],
    "[1, ..., 30:40]": np.s_[1, ..., 30:40],
    "[::-1, 0, ::7]": np.s_[::-1, 0, ::7],
    "[..., 60:2:-9]": np.s_[..., 60:2:-9],
    "[5:]": np.s_[5:],
    "[..., 9:9]": np.s_[..., 9:9],
    "[ 0 , 1 : 3 ]": np.s_[0, 1:3],
    "[...]": np.s_[...],
}


@pytest.mark.parametrize("text", INDICES)
def test_the_same_as_numpy(text: str) -> None:
    index = INDICES[text]
    np.testing.assert_array_equal(take(PLAIN, parse(f"w{text}")), ARRAY[index])
    decoded = dequantize(PACKED.data, Q8)
    np.testing.assert_array_equal(take(PACKED, parse(f"w{text}")), decoded[index])


def test_scalars() -> None:
    scalar = WeightData.from_numpy(np.array(3.0), "w")
    assert take(scalar, parse("w")) == 3
    with pytest.raises(UsageError, match="more indices than the shape"):
        take(scalar, parse("w[0]"))


def test_a_name_may_have_brackets_itself() -> None:
    assert parse("a[0]", {"a[0]"}).name == "a[0]"
    assert parse("a[0]").name == "a"
    assert parse("a[0][1]").name == "a[0]"


WRONG = {
    "w[]": "is not an index",
    "w[a]": "is not an index",
    "w[1:2:3:4]": "is not an index",
    "w[1.5]": "is not an index",
    "w[..., ...]": "more than one",
    "w[::0]": "the step in",
    "w[3]": "does not fit",
    "w[0, 0, 64]": "does not fit",
    "w[0, 0, 0, 0]": "more indices than the shape",
    f"w[{'9' * 5000}]": "is not an index",
}


@pytest.mark.parametrize("text", WRONG)
@pytest.mark.parametrize("weight", [PLAIN, PACKED])
def test_what_is_wrong_is_said(text: str, weight: WeightData) -> None:
    with pytest.raises(UsageError, match=WRONG[text]):
        take(weight, parse(text))


def test_what_nobody_reads_is_refused() -> None:
    huge = WeightData.from_numpy(np.broadcast_to(np.float32(0), (1 << 13, 1 << 13)), "w")
    with pytest.raises(UsageError, match="at most 16777216"):
        take(huge, parse("w"))
    assert take(huge, parse("w[5, 0:9]")).shape == (9,)
