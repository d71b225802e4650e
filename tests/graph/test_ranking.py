"""The largest elements beside NumPy's stable sort."""

from __future__ import annotations

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, executor, ops
from maxtool.graph.limits import least_sizes

F32 = DType.float32
rng = np.random.default_rng(0)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "int64", "uint8"])
def test_what_numpy_sorts(name: str) -> None:
    dtype = DType(name)

    def call(x: Tensor) -> list[Tensor]:
        return [*ops.top_k(x, 3), *ops.top_k(x, 5, axis=1)]

    run = executor.find_executor().compile(Graph("g", call, [TensorType(dtype, ["n", 5, 9])]), {})
    for n in (2, 0):
        x = rng.integers(0, 6, (n, 5, 9)).astype(dtype.to_numpy())  # with many ties
        values, places, columns, column_places = (one.to_numpy() for one in run(Tensor(x)))
        order = -x.astype(np.float64)
        np.testing.assert_array_equal(places, order.argsort(-1, kind="stable")[..., :3])
        np.testing.assert_array_equal(column_places, order.argsort(1, kind="stable"))
        np.testing.assert_array_equal(values, np.take_along_axis(x, places, -1))
        np.testing.assert_array_equal(columns, np.take_along_axis(x, column_places, 1))


def test_nan_comes_first_and_infinity_counts() -> None:
    values, places = ops.top_k([-np.inf, 2.0, np.nan, np.inf, np.nan], 5)
    assert places.to_numpy().tolist() == [2, 4, 3, 1, 0]
    np.testing.assert_array_equal(values.to_numpy(), [np.nan, np.nan, np.inf, 2, -np.inf])


def test_a_symbolic_dimension_has_as_many_elements() -> None:
    graph = Graph("g", lambda x: ops.top_k(x, 2)[0], [TensorType(F32, ["n"])])
    assert least_sizes(graph) == {"n": 2}
    (result,) = executor.find_executor().compile(graph, {})(Tensor(np.array([1, 4, 3], "f4")))
    assert result.to_numpy().tolist() == [4, 3]


@pytest.mark.parametrize(
    ("shape", "k", "axis", "message"),
    [
        ([2, 3], 4, -1, r"top_k\(float32\[2, 3\]\): axis 1 is not known to have 4"),
        ([2], 1, 1, r"top_k\(.*no axis 1"),
    ],
)
def test_operands_that_do_not_fit(shape: list[int | str], k: int, axis: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Graph("g", lambda x: ops.top_k(x, k, axis), [TensorType(F32, shape)])


SORTED = [DType.float32, DType.bfloat16, DType.int64, DType.uint8]


@pytest.mark.parametrize("dtype", SORTED, ids=lambda dtype: dtype.value)
def test_the_order_of_all(dtype: DType) -> None:
    """Sort like NumPy's stable order, in each direction, rows of any length."""
    rng = np.random.default_rng(0)

    def call(x: Tensor) -> list[Tensor]:
        return [ops.argsort(x), ops.argsort(x, ascending=False), ops.argsort(x, axis=0)]

    run = executor.find_executor().compile(Graph("g", call, [TensorType(dtype, ["a", "b"])]), {})
    for shape in ((3, 1), (1, 2), (4, 37), (2, 0)):
        x = rng.integers(0, 30, shape).astype(dtype.to_numpy())
        up, down, first = (value.to_numpy() for value in run(Tensor(x)))
        wide = x.astype(np.float64)
        np.testing.assert_array_equal(up, np.argsort(wide, kind="stable"))
        np.testing.assert_array_equal(down, np.argsort(-wide, kind="stable"))
        np.testing.assert_array_equal(first, np.argsort(wide, axis=0, kind="stable"))


def test_the_order_of_what_has_none() -> None:
    x = np.array([np.nan, 1, -np.inf, np.nan, np.inf], np.float32)
    np.testing.assert_array_equal(ops.argsort(x).to_numpy(), [2, 1, 4, 0, 3])
    np.testing.assert_array_equal(ops.argsort(x, ascending=False).to_numpy(), [0, 3, 4, 1, 2])
    with pytest.raises(ValueError, match=r"argsort\(bool\[1\]\): needs numbers"):
        ops.argsort(np.array([True]))
    with pytest.raises(ValueError, match=r"argsort\(float32\[5\]\): there is no dimension 1"):
        ops.argsort(x, axis=1)
