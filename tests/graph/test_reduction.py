"""Reductions beside NumPy in float64, for every type, of something and of nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, executor, ops
from maxtool.graph.limits import least_sizes
from tests.effort import thinned

F32 = DType.float32
TOLERANCE = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-5, "float64": 1e-12}
QUICK = ("bfloat16", "float32", "int64", "uint8")
TYPES = (*TOLERANCE, *(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")))
rng = np.random.default_rng(0)

# Ours and NumPy's; ``same`` keeps integers from being widened.
CASES: list[tuple[Callable[[Tensor], Tensor], Callable[..., Any]]] = [
    (ops.sum, lambda x, same: x.sum(-1, keepdims=True, **same)),
    (lambda x: ops.sum(x, axis=(0, -1)), lambda x, same: x.sum((0, 2), keepdims=True, **same)),
    (lambda x: ops.prod(x, axis=1), lambda x, same: x.prod(1, keepdims=True, **same)),
    (lambda x: ops.cumsum(x), lambda x, same: np.cumsum(x, -1, **same)),
    (lambda x: ops.max(x, axis=None), lambda x, _: x.max().reshape(1)),
    (lambda x: ops.argmin(x, axis=None), lambda x, _: x.argmin().reshape(1)),
    (lambda x: ops.min(x, axis=0), lambda x, _: x.min(0, keepdims=True)),
    (lambda x: ops.argmax(x, axis=1), lambda x, _: x.argmax(1, keepdims=True)),
    (ops.argmin, lambda x, _: x.argmin(-1, keepdims=True)),
]
OF_FLOATS: list[tuple[Callable[[Tensor], Tensor], Callable[..., Any]]] = [
    (lambda x: ops.mean(x, axis=[1, 2]), lambda x, _: x.mean((1, 2), keepdims=True)),
    (ops.logsumexp, lambda x, _: np.logaddexp.reduce(x, -1, keepdims=True)),
    (lambda x: ops.logsumexp(x, axis=None), lambda x, _: np.logaddexp.reduce(x.ravel())[None]),
]


def values(dtype: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if dtype.is_float():
        return (3 * rng.standard_normal(shape)).astype(dtype.to_numpy())
    return rng.integers(0, 200 if dtype.size_in_bytes > 1 else 100, shape).astype(dtype.to_numpy())


@pytest.mark.parametrize("name", thinned(TYPES, *QUICK))
def test_what_numpy_computes(name: str) -> None:
    dtype = DType(name)
    cases = [*CASES, *OF_FLOATS] if dtype.is_float() else CASES
    kind = TensorType(dtype, ["a", 3, "c"])
    graph = Graph("g", lambda x: [ours(x) for ours, _ in cases], [kind])
    run = executor.find_executor().compile(graph, {})
    for shape in ((2, 3, 41), (4, 3, 1)):
        x = values(dtype, shape)
        exact = x.astype(np.float64) if dtype.is_float() else x
        same = {} if dtype.is_float() else {"dtype": x.dtype}
        scale = TOLERANCE.get(name, 0)
        for got, (_, numpy) in zip(run(Tensor(x)), cases, strict=True):
            wanted = numpy(exact, same)
            assert got.shape == wanted.shape
            assert got.dtype is (dtype if wanted.dtype == exact.dtype else DType.int64)
            result = got.to_numpy().astype(wanted.dtype)
            np.testing.assert_allclose(result, wanted, rtol=scale, atol=20 * scale)


def test_running_sums_in_each_direction() -> None:
    x = values(F32, (2, 5))
    backward = np.flip(np.cumsum(np.flip(x, 0), 0), 0)
    got = ops.cumsum(x, axis=0, exclusive=True, reverse=True).to_numpy()
    np.testing.assert_allclose(got, backward - x, atol=1e-5)
    np.testing.assert_allclose(
        ops.cumsum(x, exclusive=True).to_numpy(), np.cumsum(x, 1) - x, atol=1e-5
    )


def test_truth() -> None:
    x = rng.integers(0, 2, (4, 3)).astype(np.bool_)
    np.testing.assert_array_equal(ops.any(x).to_numpy(), x.any(1, keepdims=True))
    np.testing.assert_array_equal(ops.all(x, axis=0).to_numpy(), x.all(0, keepdims=True))


def test_nan_and_ties() -> None:
    """NaN wins, the first one's place is told; among equals the first; vectors and their rest."""
    x = np.zeros((3, 37), np.float32)
    x[0, [20, 36]], x[1, 5:7], x[2, 36] = np.nan, -1, 9
    np.testing.assert_array_equal(ops.max(x).to_numpy(), x.max(1, keepdims=True))
    np.testing.assert_array_equal(ops.min(x).to_numpy(), x.min(1, keepdims=True))
    np.testing.assert_array_equal(ops.argmax(x).to_numpy(), [[20], [0], [36]])
    np.testing.assert_array_equal(ops.argmin(x).to_numpy(), [[20], [5], [0]])


def test_of_nothing() -> None:
    """Reduce rows without elements, and no rows; the size known at compile time or not."""
    calls = [ops.sum, ops.prod, ops.mean, ops.logsumexp, ops.cumsum]
    ends = [np.full((2, 1), value) for value in (0, 1, np.nan, -np.inf)]
    wanted = [*ends, np.zeros((2, 0))]
    run = executor.find_executor().compile(
        Graph("g", lambda x: [call(x) for call in calls], [TensorType(F32, [2, "n"])]), {}
    )
    nothing = Tensor.zeros([2, 0])
    for traced, call, expected in zip(run(nothing), calls, wanted, strict=True):
        np.testing.assert_array_equal(traced.to_numpy(), expected)
        np.testing.assert_array_equal(call(nothing).to_numpy(), expected)
    assert ops.max(Tensor.zeros([0, 3])).shape == [0, 1]
    truth = Tensor(np.zeros((2, 0), np.bool_))
    assert ops.any(truth).to_numpy().tolist() == [[False], [False]]
    assert ops.all(truth).to_numpy().tolist() == [[True], [True]]


@pytest.mark.parametrize("dtype", [F32, DType.float64])
def test_sums_of_exponentials_that_overflow_or_vanish(dtype: DType) -> None:
    """Reduce whole vectors and remainders; an infinite element, or only such."""
    inf = np.inf
    ends = [[1e4, 1e4], [-1e4, -1e4], [inf, 0], [inf, -inf], [-inf, -inf], [np.nan, inf], [-inf, 3]]
    expected = [1e4 + np.log(20), np.log(20) - 1e4, inf, inf, -inf, np.nan, 3 + np.log(10)]
    x = np.repeat(np.array(ends), 10, axis=1).astype(dtype.to_numpy())
    actual = ops.logsumexp(x).to_numpy()
    np.testing.assert_allclose(actual[:, 0], expected, rtol=1e-6)


def test_the_place_of_a_maximum_demands_an_element() -> None:
    graph = Graph("g", lambda x: ops.argmax(x, axis=None), [TensorType(F32, ["n", 3])])
    assert least_sizes(graph) == {"n": 1}


def test_other_forms() -> None:
    assert ops.sum(Tensor(np.float32(3)), axis=None).to_numpy().tolist() == [3]
    assert ops.max([1.0, 5.0], [2.0, 3.0]).to_numpy().tolist() == [2, 5]
    assert ops.min([1.0, 5.0], [2.0, 3.0]).to_numpy().tolist() == [1, 3]
    assert ops.argmax([[1.0, 5.0], [7.0, 2.0]], axis=None).to_numpy().tolist() == [2]
    x = Tensor([[[1.0, 5.0]], [[7.0, 2.0]]])
    for method in ("sum", "mean", "prod", "max", "min", "var", "std", "argmax", "argmin"):
        assert getattr(x, method)(axis=None).shape == [1]
        assert getattr(x, method)().shape == [2, 1, 1]
    with pytest.raises(TypeError, match="NoneType"):
        ops.cumsum(x, None)  # type: ignore[arg-type]
    assert ops.any(x > 6, axis=None).to_numpy().tolist() == [True]
    assert ops.all(x > 6, axis=None).to_numpy().tolist() == [False]


def test_half_precision_adds_in_single() -> None:
    """One by one, float16 would stop growing at 2048."""
    ones = Tensor.ones([5000], DType.float16)
    assert ops.sum(ones).to_numpy() == 5000
    assert ops.cumsum(ones).to_numpy()[-1] == 5000


@pytest.mark.parametrize(
    ("call", "dtype", "message"),
    [
        (lambda x: ops.sum(x, axis=2), F32, r"sum\(float32\[n, 0\]\): there is no axis 2"),
        (lambda x: ops.sum(x, axis=-3), F32, r"sum\(.*no axis -3 in 2 dimensions"),
        (lambda x: ops.sum(x, axis=[0, -2]), F32, r"sum\(.*twice"),
        (ops.max, F32, r"max\(float32\[n, 0\]\): there is no element along axis 1"),
        (ops.argmin, F32, r"argmin\(.*no element"),
        (ops.sum, DType.bool, r"sum\(bool\[n, 0\]\): needs numbers"),
        (ops.mean, DType.int32, r"mean\(int32\[n, 0\]\): needs floating-point"),
        (ops.any, F32, r"any\(float32\[n, 0\]\): needs bool"),
        (ops.sum, DType.float8_e4m3fn, r"sum\(.*wider type"),
    ],
)
def test_operands_that_do_not_fit(
    call: Callable[[Tensor], Tensor], dtype: DType, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Graph("g", call, [TensorType(dtype, ["n", 0])])


@pytest.mark.parametrize(
    "dtype",
    thinned([F32, DType.float16, DType.bfloat16, DType.float64], F32, DType.bfloat16),
)
def test_variance(dtype: DType) -> None:
    """Keep digits far from 0, where the mean of squares minus the squared mean has none."""

    def call(x: Tensor) -> list[Tensor]:
        one, all_, both = ops.variance(x), ops.variance(x, None, 1), ops.std(x, (0, 1), 1)
        return [one, all_, both]

    run = executor.find_executor().compile(Graph("g", call, [TensorType(dtype, ["a", 5])]), {})
    x = (100 + values(F32, (7, 5))).astype(dtype.to_numpy())
    wide = x.astype(np.float64)
    wanted = [
        wide.var(-1, keepdims=True),
        wide.var(ddof=1).reshape(1),
        wide.std(ddof=1, keepdims=True),
    ]
    for got, exact in zip(run(Tensor(x)), wanted, strict=True):
        assert got.dtype is dtype
        np.testing.assert_allclose(
            got.to_numpy().astype(float), exact, rtol=2 * TOLERANCE[dtype.value]
        )
    single = ops.variance(Tensor([[1.0]]), correction=1).to_numpy()
    assert np.isnan(single).all()
