"""Operations on bits beside NumPy, for every type, in graphs and at once."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, executor, ops

WHOLE = [dtype for dtype in DType if dtype.is_integral()]
NAMES = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}


def run(call: Callable[..., list[Tensor]], *operands: np.ndarray) -> list[np.ndarray]:
    kinds = [TensorType(DType.from_numpy(one.dtype), ["n"]) for one in operands]
    compiled = executor.find_executor().compile(Graph("g", call, kinds), {})
    return [value.to_numpy() for value in compiled(*map(Tensor, operands))]


def samples(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    limits = np.iinfo(dtype.to_numpy())
    values = np.array([0, 1, 2, 85, limits.max, limits.max // 3, limits.min], dtype.to_numpy())
    return np.repeat(values, len(values)), np.tile(values, len(values))


@pytest.mark.parametrize("dtype", WHOLE, ids=lambda dtype: dtype.value)
def test_bits_of_two_numbers_and_of_one(dtype: DType) -> None:
    x, y = samples(dtype)

    def calls(x: Tensor, y: Tensor) -> list[Tensor]:
        return [*(ops.apply(name, x, y)[0] for name in NAMES), ops.bitwise_not(x)]

    expected = [*(numpy(x, y) for numpy in NAMES.values()), ~x]
    for got, wanted in zip(run(calls, x, y), expected, strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", [d for d in WHOLE if "u" in d.value], ids=lambda d: d.value)
def test_shifts_by_any_number_of_places(dtype: DType) -> None:
    bits = 8 * dtype.size_in_bytes
    places = np.arange(bits + 3, dtype=dtype.to_numpy())
    x = np.full_like(places, np.iinfo(dtype.to_numpy()).max - 2)
    left, right = run(lambda x, y: [ops.shift_left(x, y), ops.shift_right(x, y)], x, places)
    mask = (1 << bits) - 1
    assert left.tolist() == [(int(x[0]) << int(by)) & mask for by in places]
    assert right.tolist() == [int(x[0]) >> int(by) for by in places]


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (np.array([1.5, -0.0, np.inf, np.nan], np.float32), DType.int32),
        (np.array([0, -1, 1 << 30], np.int32), DType.float32),
        (np.array([1.5, -2], ml_dtypes.bfloat16), DType.uint16),
        (np.array([1, 0x3C00], np.uint16), DType.float16),
        (np.array([0.1, -7], np.float64), DType.uint64),
        (np.array([1, 255], np.uint8), DType.int8),
    ],
)
def test_bits_as_another_type(array: np.ndarray, dtype: DType) -> None:
    (got,) = run(lambda x: [ops.bitcast(x, dtype)], array)
    assert got.dtype == dtype.to_numpy()
    assert got.tobytes() == array.tobytes()
    assert ops.bitcast(Tensor(array), dtype).to_numpy().tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ops.bitwise_and(x, x), "needs whole numbers, not float32"),
        (lambda x: ops.bitcast(x, DType.int64), "int64 has 8 bytes, not 4"),
        (lambda x: ops.bitcast(x < 0, DType.int8), "the bits of bool mean nothing"),
        (lambda x: ops.shift_left(ops.cast(x, DType.int8), 1), "numbers without a sign, not int8"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[Tensor], Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Graph("g", call, [TensorType(DType.float32, [3])])
