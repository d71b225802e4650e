"""Tensors that hold data: construction, NumPy's protocols, indexing errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.errors import MissingWeight
from maxtool.graph import Tensor, Weight


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (1.5, DType.float32),
        ([1, 2], DType.float32),
        (True, DType.bool),
        (np.float64(1.5), DType.float64),
        (np.zeros(2, ml_dtypes.bfloat16), DType.bfloat16),
    ],
)
def test_the_dtype_is_that_of_an_array_and_float32_for_python_numbers(
    data: object, dtype: DType
) -> None:
    assert Tensor(data).dtype is dtype  # type: ignore[arg-type]


def test_an_array_is_kept_and_not_copied() -> None:
    array = np.zeros((2, 3), np.float32)
    assert Tensor(array).to_numpy() is array
    assert Tensor(array).num_elements() == 6


def test_numpy_reads_a_tensor() -> None:
    tensor = Tensor([1.0, 2.0])
    assert np.asarray(tensor) is tensor.to_numpy()
    assert np.asarray(tensor, dtype=np.float64).dtype == np.float64
    copy = np.array(tensor)
    assert not np.shares_memory(copy, tensor.to_numpy())
    np.testing.assert_array_equal(np.from_dlpack(tensor), [1, 2])


def test_a_scalar_has_a_truth_value_and_no_length() -> None:
    assert Tensor(1.0)
    assert not Tensor(0)
    with pytest.raises(TypeError, match="rank 0"):
        len(Tensor(1.0))


def test_a_weight_without_data() -> None:
    weight = Weight("w", DType.float32, [2])
    assert not weight.is_bound
    with pytest.raises(MissingWeight, match="'w' has no data"):
        weight.to_numpy()


def test_a_weight_may_be_changed_before_a_graph_is_built() -> None:
    weight = Weight("w", DType.float32, [2])
    weight.dtype, weight.shape = DType.float16, (3, 4)  # type: ignore[assignment]
    assert str(weight.type) == "float16[3, 4]"
    assert repr(weight) == "Weight('w', float16[3, 4])"
