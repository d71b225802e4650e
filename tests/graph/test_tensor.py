"""Tensors that hold data: construction, NumPy's protocols, indexing errors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm_ffi

from maxtool.dtype import DType
from maxtool.errors import MissingWeight
from maxtool.graph import Graph, Tensor, TensorType, Weight, executor


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


ALL = list(DType)


@pytest.mark.parametrize("dtype", ALL, ids=lambda dtype: dtype.value)
def test_tensors_of_every_type(dtype: DType) -> None:
    result = [
        Tensor.ones([2, 1], dtype),
        Tensor.ones_like(Tensor.zeros([2, 1], dtype)),
        Tensor.full([2, 1], 1, dtype=dtype),
        Tensor.full_like(Tensor.zeros([2, 1], dtype), 1),
        Tensor.constant([[1], [1]], dtype),
        Tensor.from_numpy(np.ones((2, 1), dtype.to_numpy())),
        Tensor.from_dlpack(Tensor.ones([2, 1], dtype)),
    ]
    for tensor in result:
        assert (tensor.dtype, tensor.shape) == (dtype, [2, 1])
        np.testing.assert_array_equal(tensor.to_numpy().astype(np.float32), [[1], [1]])
    assert Tensor.ones([], dtype).item() == 1
    assert bool(Tensor.ones([1, 1], dtype))
    if dtype is not DType.float8_e8m0fnu:  # which has no 0
        assert not Tensor.zeros_like(result[0][0])


@pytest.mark.parametrize("dtype", ALL, ids=lambda dtype: dtype.value)
def test_memory_is_handed_over_with_its_type(dtype: DType) -> None:
    """Exchange memory with TVM in both directions; types that both know are not copied."""
    x = np.arange(6).reshape(2, 3).astype(dtype.to_numpy())
    handed = tvm_ffi.from_dlpack(Tensor(x))
    assert str(handed.dtype) == dtype.value
    back = Tensor.from_dlpack(handed)
    assert back.dtype is dtype
    assert np.shares_memory(back.to_numpy().view(np.uint8), x.view(np.uint8))
    assert back.to_numpy().tobytes() == x.tobytes()


def test_memory_with_strides_and_memory_that_is_read_only() -> None:
    wide = np.arange(12, dtype=ml_dtypes.bfloat16).reshape(3, 4)
    for view in (wide.T, wide[::2, 1:], wide[::-1]):
        back = Tensor.from_dlpack(Tensor(view))
        assert back.to_numpy().tobytes() == view.tobytes()
        np.testing.assert_array_equal((Tensor(view) + 1).to_numpy(), view + 1)
    fixed = np.arange(3, dtype=np.float32)
    fixed.flags.writeable = False
    np.testing.assert_array_equal((Tensor(fixed) * 2).to_numpy(), [0, 2, 4])
    np.testing.assert_array_equal(np.from_dlpack(Tensor(fixed)), fixed)


def test_memory_of_no_type_that_there_is() -> None:
    with pytest.raises(BufferError, match="from_dlpack"):
        Tensor.from_dlpack(_Elsewhere())
    with pytest.raises(ValueError, match="complex64"):
        Tensor.from_dlpack(np.zeros(2, np.complex64))


class _Elsewhere:
    """A producer on a device that is not here."""

    def __dlpack__(self, **_options: object) -> object:
        return np.zeros(2, np.float32).__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


def test_bytes_in_the_other_order_are_turned() -> None:
    swapped = np.array([1.5, -2], np.dtype(np.float32).newbyteorder())
    np.testing.assert_array_equal((Tensor(swapped) + 0).to_numpy(), [1.5, -2])


def test_one_element_is_a_python_number() -> None:
    assert [10, 20, 30][Tensor(np.array(1))] == 20
    assert (int(Tensor(2.9)), float(Tensor(np.array([3])))) == (2, 3.0)
    assert isinstance(Tensor(np.array([True])).item(), bool)
    for wrong in (Tensor(1.0), Tensor(np.array([1])), Tensor(np.array(True))):
        with pytest.raises(TypeError, match="is not an index"):
            wrong.__index__()
    for several in (Tensor([1.0, 2.0]), Tensor.zeros([0])):
        with pytest.raises(ValueError, match="neither true nor false"):
            bool(several)


def test_numbers_beside_a_dimension() -> None:
    x = Tensor([2.0, 4.0])
    np.testing.assert_array_equal((x / x.shape[0]).to_numpy(), [1, 2])
    graph = Graph("g", lambda x: [x.sum() / x.shape[0]], [TensorType(DType.float32, ["n"])])
    (got,) = executor.find_executor().compile(graph, {})(x)
    assert got.item() == 3.0


METHODS = {
    "sum": lambda x: x.sum(0, keepdims=True),
    "mean": lambda x: x.mean(0, keepdims=True),
    "prod": lambda x: x.prod(0, keepdims=True),
    "max": lambda x: x.max(0, keepdims=True),
    "min": lambda x: x.min(0, keepdims=True),
    "argmax": lambda x: x.argmax(0, keepdims=True),
    "argmin": lambda x: x.argmin(0, keepdims=True),
    "cumsum": lambda x: x.cumsum(0),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_operations(name: str) -> None:
    x = np.array([[1, 4], [3, 2]], np.float32)
    np.testing.assert_array_equal(getattr(Tensor(x), name)(0).to_numpy(), METHODS[name](x))


@pytest.mark.peers
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "bool", "float16"])
def test_tensors_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.arange(6).reshape(2, 3).to(getattr(torch, name))
    ours = Tensor.from_dlpack(theirs)
    assert ours.dtype is DType(name)
    assert ours.to_numpy().ctypes.data == theirs.data_ptr()
    back = torch.from_dlpack(ours)
    assert back.dtype is theirs.dtype and back.data_ptr() == theirs.data_ptr()


@pytest.mark.parametrize(
    ("numbers", "dtype", "wrong"),
    [(300, DType.uint8, "300"), ([1, -1], DType.uint16, "-1"), ([[2**40]], DType.int32, str(2**40)),
     (np.int64(-129), DType.int8, "-129")],
)  # fmt: skip
def test_whole_numbers_do_not_wrap_around(numbers: Any, dtype: DType, wrong: str) -> None:
    with pytest.raises(ValueError, match=rf"{dtype.value} has the numbers .*, not {wrong}"):
        Tensor(numbers, dtype)
    assert Tensor(np.array([300]), DType.uint8).to_numpy().tolist() == [44]  # an array is cast
    assert Tensor([], DType.int8).shape == [0]
