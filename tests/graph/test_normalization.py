"""Softmax and normalisations beside NumPy in float64, for every float type, symbolic and empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, executor, ops
from tests.effort import thinned

Array = np.ndarray[Any, Any]

F16, F32, F64, I32 = DType.float16, DType.float32, DType.float64, DType.int32
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-5, "float64": 1e-12}
EPS = 1e-3
rng = np.random.default_rng(0)


def softmax(x: Array, axis: int) -> Array:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis, keepdims=True))


def normal(x: Array, axes: int | tuple[int, ...]) -> Array:
    centred = x - x.mean(axes, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(axes, keepdims=True) + EPS))


def grouped(x: Array, gamma: Array, beta: Array) -> Array:
    """Three groups of two channels."""
    groups = normal(x.reshape(len(x), 3, -1), -1).reshape(x.shape)
    return np.asarray(groups * gamma[:, None] + beta[:, None])


def rms(x: Array, w: Array) -> Array:
    return np.asarray(x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS) * w)


def l2(x: Array, eps: float) -> Array:
    return np.asarray(x / np.sqrt((x**2).sum(-1, keepdims=True) + eps))


def computed(x: Tensor, image: Tensor, w: Tensor, v: Tensor, six: Tensor) -> list[Tensor]:
    return [
        ops.softmax(x),
        ops.softmax(x, axis=0),
        ops.logsoftmax(x, axis=-2),
        ops.layer_norm(x, w, v, EPS),
        ops.layer_norm(x, None, None, EPS),
        ops.group_norm(image, six, six, 3, EPS),
        ops.rms_norm(x, w, EPS, weight_offset=1.0, multiply_before_cast=True),
        ops.rms_norm(x, w, EPS),
        ops.l2_norm(x),
        ops.l2_norm(image, EPS),
    ]


def expected(x: Array, image: Array, w: Array, v: Array, six: Array) -> list[Array]:
    return [
        softmax(x, -1),
        softmax(x, 0),
        np.log(softmax(x, -2)),
        normal(x, -1) * w + v,
        normal(x, -1),
        grouped(image, six, six),
        rms(x, w + 1),
        rms(x, w),
        l2(x, 1e-6),
        l2(image, EPS),
    ]


@pytest.mark.parametrize("name", thinned(TOLERANCE, "bfloat16", "float32"))
def test_what_numpy_computes(name: str) -> None:
    dtype = DType(name)
    shapes: list[list[int | str]] = [["a", "b", 21], ["a", 6, "b"], [21], [21], [6]]
    graph = Graph("g", computed, [TensorType(dtype, shape) for shape in shapes])
    run = executor.find_executor().compile(graph, {})
    for a, b in ((2, 3), (1, 40)):
        sizes = [[{"a": a, "b": b}.get(str(dim), dim) for dim in shape] for shape in shapes]
        arrays = [rng.standard_normal(size).astype(dtype.to_numpy()) for size in sizes]  # type: ignore[arg-type]
        actual = run(*map(Tensor, arrays))
        wanted = expected(*(array.astype(np.float64) for array in arrays))
        for got, one in zip(actual, wanted, strict=True):
            assert (got.dtype, got.shape) == (dtype, list(one.shape))
            scale = TOLERANCE[name]
            np.testing.assert_allclose(
                got.to_numpy().astype(np.float64), one, rtol=scale, atol=3 * scale
            )


def test_weights_of_another_type() -> None:
    """Activations in half precision beside weights in single, and the reverse."""
    x = rng.standard_normal((2, 20))
    w = rng.standard_normal(20)
    for left, right in ((F16, F32), (F32, DType.bfloat16), (F64, F32)):
        values, weight = x.astype(left.to_numpy()), w.astype(right.to_numpy())
        exact = values.astype(np.float64), weight.astype(np.float64)
        normed = ops.layer_norm(values, Tensor(weight), None, EPS)
        scaled = ops.rms_norm(values, Tensor(weight), EPS, multiply_before_cast=True)
        for got, wanted in ((normed, normal(exact[0], -1) * exact[1]), (scaled, rms(*exact))):
            assert got.dtype is left
            scale = TOLERANCE[left.value]
            np.testing.assert_allclose(
                got.to_numpy().astype(np.float64), wanted, rtol=scale, atol=scale
            )


def test_rounding_before_the_product_and_after_it() -> None:
    """Llama rounds the normalised value to the type of the input first, Gemma the product."""
    x = rng.standard_normal((4, 33)).astype(np.float16)
    w = rng.standard_normal(33).astype(np.float16)
    wide = x.astype(np.float32)
    scale = 1 / np.sqrt((wide**2).mean(-1, keepdims=True, dtype=np.float64) + EPS)
    normed = (wide * scale.astype(np.float32)).astype(np.float16)
    llama = ops.rms_norm(x, Tensor(w), EPS).to_numpy()
    gemma = ops.rms_norm(x, Tensor(w), EPS, multiply_before_cast=True).to_numpy()
    assert np.count_nonzero(llama != normed * w) <= 2  # where the last bit of the root differs
    assert np.count_nonzero(llama != gemma) > 10
    np.testing.assert_allclose(llama, gemma, rtol=3e-3)


@pytest.mark.parametrize("name", TOLERANCE)
def test_l2_norms(name: str) -> None:
    dtype = DType(name)
    for shape in ((1,), (3, 1), (2, 3, 7), (5, 17), (1, 130), (2, 0), (0, 4)):
        x = rng.standard_normal(shape).astype(dtype.to_numpy())
        got = ops.l2_norm(x, 0.5)
        assert (got.dtype, got.shape) == (dtype, list(shape))
        wanted = l2(x.astype(np.float64), 0.5)
        scale = TOLERANCE[name]
        actual = got.to_numpy().astype(np.float64)
        np.testing.assert_allclose(actual, wanted, rtol=scale, atol=scale)


def test_l2_norms_of_what_is_zero_large_or_not_finite() -> None:
    x = np.array([[0, 0, 0], [np.inf, -1, 0], [1, np.nan, 0], [3e4, -4e4, 0]], np.float16)
    result = ops.l2_norm(x).to_numpy()  # squares of the last row are beyond float16
    wanted = [[0, 0, 0], [np.nan, 0, 0], [np.nan] * 3, [0.6, -0.8, 0]]
    np.testing.assert_allclose(result, np.array(wanted), rtol=1e-3)
    assert np.isnan(ops.l2_norm(np.zeros(20, np.float32), 0).to_numpy()).all()


def test_large_and_hidden_scores() -> None:
    x = np.array([[1e4, 1e4, -np.inf], [3e38, -3e38, 0]], np.float32)
    assert ops.softmax(x).to_numpy().tolist() == [[0.5, 0.5, 0], [1, 0, 0]]
    assert ops.logsoftmax(x).to_numpy()[0, 2] == -np.inf
    assert np.isnan(ops.softmax(np.full((1, 20), -np.inf, np.float32)).to_numpy()).all()


def test_of_nothing() -> None:
    def call(x: Tensor, y: Tensor) -> list[Tensor]:
        ones = Tensor.ones([4])
        normed = ops.layer_norm(y, ones, ones, EPS)
        return [
            ops.softmax(x),
            ops.softmax(y, axis=0),
            normed,
            ops.group_norm(y, None, None, 2, EPS),
            ops.l2_norm(x),
        ]

    kinds = [TensorType(F32, [2, "n"]), TensorType(F32, ["n", 4])]
    run = executor.find_executor().compile(Graph("g", call, kinds), {})
    inputs = [Tensor.zeros([2, 0]), Tensor.zeros([0, 4])]
    assert [list(one.shape) for one in run(*inputs)] == [[2, 0], [0, 4], [0, 4], [0, 4], [2, 0]]
    assert [list(one.shape) for one in call(*inputs)] == [[2, 0], [0, 4], [0, 4], [0, 4], [2, 0]]


def kind(*shape: int | str, dtype: DType = F32) -> TensorType:
    return TensorType(dtype, shape)


@pytest.mark.parametrize(
    ("call", "types", "message"),
    [
        (ops.softmax, [kind(2, dtype=I32)], r"softmax\(int32\[2\]\): needs floating-point"),
        (lambda x: ops.softmax(x, 2), [kind(2, 3)], r"softmax\(float32\[2, 3\]\): .*no axis 2"),
        (ops.logsoftmax, [kind()], r"logsoftmax\(.*no axis -1"),
        (ops.l2_norm, [kind(2, dtype=I32)], r"l2_norm\(int32\[2\]\): needs floating-point"),
        (ops.l2_norm, [kind()], r"l2_norm\(float32\[\]\): .*at least one dimension"),
        (lambda x: ops.l2_norm(x, -1), [kind(3)], r"l2_norm\(.*eps is not negative"),
        (lambda *x: ops.layer_norm(*x, EPS), [kind(2, 3), kind(2), kind(3)], r"gamma has.*\[3\]"),
        (lambda *x: ops.layer_norm(*x, EPS), [kind(2, 3), kind(3), kind(2)], r"beta has.*\[3\]"),
        (lambda *x: ops.layer_norm(*x, EPS), [kind(), kind(1), kind(1)], r"layer_norm\(.*one dim"),
        (lambda x: ops.layer_norm(x, None, None, EPS), [kind("n")], r"gamma has shape \[n\]"),
        (lambda x: ops.layer_norm(x, None, None, -1), [kind(3)], r"layer_norm\(.*eps"),
        (
            lambda x: ops.group_norm(x, None, None, 4, EPS),
            [kind(2, 6)],
            r"6 channels do not make 4",
        ),
        (lambda x: ops.group_norm(x, None, None, 0, EPS), [kind(2, 6)], r"0 groups"),
        (lambda x: ops.group_norm(x, None, None, 2, EPS), [kind(6)], r"group_norm\(.*\[batch, ch"),
    ],
)
def test_operands_that_do_not_fit(
    call: Callable[..., Tensor], types: list[TensorType], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Graph("g", call, types)
