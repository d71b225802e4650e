"""Convolutions and pooling beside loops over windows in float64."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, executor, ops
from maxtool.graph.limits import least_sizes
from maxtool.parity import evaluate
from tests.effort import thinned

Array = np.ndarray[Any, Any]

F32, I32 = DType.float32, DType.int32
TOLERANCE = {"float16": 3e-3, "bfloat16": 2e-2, "float32": 1e-5, "float64": 1e-12}
rng = np.random.default_rng(0)


def windows(
    x: Array, size: Any, stride: Any, dilation: Any, padding: Any, fill: float = 0.0
) -> Array:
    """[batch, oh, ow, r, s, channels] of [batch, h, w, channels]."""
    (top, bottom, left, right), (r, s) = padding, size
    wide = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)
    reach = [dilation[i] * (size[i] - 1) for i in (0, 1)]
    oh, ow = ((wide.shape[1 + i] - reach[i] - 1) // stride[i] + 1 for i in (0, 1))
    result = np.empty((len(x), oh, ow, r, s, x.shape[3]))
    for y, z in product(range(oh), range(ow)):
        top, left = y * stride[0], z * stride[1]
        rows = slice(top, top + reach[0] + 1, dilation[0])
        result[:, y, z] = wide[:, rows, left : left + reach[1] + 1 : dilation[1]]
    return result


def convolved(
    x: Array, f: Array, groups: int = 1, bias: Array | float = 0.0, **window: Any
) -> Array:
    seen = windows(x.astype(np.float64), f.shape[:2], **window)
    parts = zip(np.split(seen, groups, -1), np.split(f.astype(np.float64), groups, -1), strict=True)
    result = [np.einsum("nhwrsc,rscf->nhwf", part, filters) for part, filters in parts]
    return np.asarray(np.concatenate(result, -1) + bias)


PLAIN: dict[str, Any] = {"stride": (1, 1), "dilation": (1, 1), "padding": (0, 0, 0, 0)}
# Filter shape, groups, and the window.
CASES: list[tuple[tuple[int, ...], int, dict[str, Any]]] = [
    ((3, 2, 4, 5), 1, PLAIN),
    ((3, 3, 4, 70), 1, PLAIN | {"stride": (2, 1), "padding": (1, 0, 2, 1)}),
    ((2, 3, 2, 6), 2, PLAIN | {"dilation": (2, 1), "padding": (1, 1, 1, 1)}),
    ((3, 3, 1, 4), 4, PLAIN | {"stride": (2, 3)}),
    ((1, 1, 4, 3), 1, PLAIN),
]


@pytest.mark.parametrize("name", thinned(TOLERANCE, "bfloat16", "float32"))
def test_convolution(name: str) -> None:
    dtype = DType(name)
    filters = [rng.standard_normal(shape).astype(dtype.to_numpy()) for shape, _, _ in CASES]

    def call(x: Tensor) -> list[Tensor]:
        return [
            ops.conv2d(x, Tensor(f), groups=groups, bias=Tensor(f[0, 0, 0]), **window)
            for f, (_, groups, window) in zip(filters, CASES, strict=True)
        ]

    run = executor.find_executor().compile(
        Graph("g", call, [TensorType(dtype, ["n", 7, 8, 4])]), {}
    )
    for n in (2, 0):
        x = rng.standard_normal((n, 7, 8, 4)).astype(dtype.to_numpy())
        for got, f, (_, groups, window) in zip(run(Tensor(x)), filters, CASES, strict=True):
            wanted = convolved(x, f, groups, f[0, 0, 0].astype(np.float64), **window)
            assert (got.dtype, got.shape) == (dtype, list(wanted.shape))
            scale = TOLERANCE[name]
            np.testing.assert_allclose(
                got.to_numpy().astype(np.float64), wanted, rtol=scale, atol=10 * scale
            )


def test_layouts_and_short_forms() -> None:
    x = rng.standard_normal((2, 5, 6, 3)).astype(np.float32)
    f = rng.standard_normal((3, 3, 3, 4)).astype(np.float32)
    window = {"stride": (2, 2), "dilation": (1, 1), "padding": (1, 1, 1, 1)}
    wanted = convolved(x, f, **window)
    short = ops.conv2d(x, f, stride=2, padding=(1, 1))
    first = ops.conv2d(
        x.transpose(0, 3, 1, 2),
        f.transpose(3, 2, 0, 1),
        stride=2,
        padding=1,
        input_layout="NCHW",
        filter_layout="FCRS",
    )
    np.testing.assert_allclose(short.to_numpy(), wanted, atol=1e-5)
    np.testing.assert_allclose(first.to_numpy(), wanted.transpose(0, 3, 1, 2), atol=1e-5)


def test_one_dimension_of_any_length() -> None:
    """Padding keeps the length, which is therefore symbolic."""
    f = rng.standard_normal((3, 2, 8)).astype(np.float32)

    def call(x: Tensor) -> Tensor:
        return ops.conv1d(x, Tensor(f), dilation=2, padding=(4, 0), groups=2)

    run = executor.find_executor().compile(Graph("g", call, [TensorType(F32, ["n", "t", 4])]), {})
    for n, t in ((2, 9), (1, 1), (3, 0)):
        x = rng.standard_normal((n, t, 4)).astype(np.float32)
        got = run(Tensor(x))[0].to_numpy()
        assert got.shape == (n, t, 8)
        if t:
            window = {"stride": (1, 1), "dilation": (1, 2), "padding": (0, 0, 4, 0)}
            wanted = convolved(x[:, None], f[None], 2, **window)[:, 0]
            np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_sizes_of_images_may_be_symbolic() -> None:
    """The size of the result follows from them; images smaller than a window are refused."""
    f = rng.standard_normal((3, 3, 4, 8)).astype(np.float32)

    def call(x: Tensor) -> Tensor:
        image = ops.conv2d(x, Tensor(f), stride=2, padding=1)
        pooled = ops.max_pool2d(image, 3, 2, padding=1, ceil_mode=True)
        return ops.avg_pool2d(pooled, 2)

    graph = Graph("g", call, [TensorType(F32, ["n", "h", "w", 4])])
    assert least_sizes(graph) == {"h": 3, "w": 3}
    run = executor.find_executor().compile(graph, {})
    for h, w in ((3, 9), (8, 30), (17, 12)):
        x = rng.standard_normal((2, h, w, 4)).astype(np.float32)
        (wanted,) = evaluate(graph, [x], {})
        np.testing.assert_allclose(run(Tensor(x))[0].to_numpy(), wanted, rtol=1e-4, atol=1e-5)
        known = call(Tensor(x)).to_numpy()
        np.testing.assert_allclose(known, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", thinned(TOLERANCE, "bfloat16", "float32"))
def test_pooling(name: str) -> None:
    dtype = DType(name)
    x = rng.standard_normal((2, 7, 6, 19)).astype(dtype.to_numpy())
    window = {"stride": (2, 1), "dilation": (1, 2), "padding": (1, 1)}

    def call(x: Tensor) -> list[Tensor]:
        return [
            ops.max_pool2d(x, (3, 2), **window),
            ops.avg_pool2d(x, (3, 2), **window),
            ops.avg_pool2d(x, (3, 2), **window, count_boundary=False),
        ]

    run = executor.find_executor().compile(
        Graph("g", call, [TensorType(dtype, ["n", 7, 6, 19])]), {}
    )
    padded = window | {"padding": (1, 1, 1, 1), "size": (3, 2)}
    exact = x.astype(np.float64)
    mean = windows(exact, **padded).mean((3, 4))
    inside = windows(np.ones_like(exact), **padded).mean((3, 4))
    wanted = [windows(exact, **padded, fill=-np.inf).max((3, 4)), mean, mean / inside]
    for got, one in zip(run(Tensor(x)), wanted, strict=True):
        assert (got.dtype, got.shape) == (dtype, list(one.shape))
        scale = TOLERANCE[name]
        np.testing.assert_allclose(got.to_numpy().astype(np.float64), one, rtol=scale, atol=scale)


def test_a_last_window_that_reaches_over_the_edge() -> None:
    x = np.arange(5, dtype=np.float32).reshape(1, 1, 5, 1)
    largest = ops.max_pool2d(x, (1, 2), stride=(1, 2), ceil_mode=True)
    assert largest.to_numpy().ravel().tolist() == [1, 3, 4]
    mean = ops.avg_pool2d(x, (1, 2), stride=(1, 2), ceil_mode=True)
    assert mean.to_numpy().ravel().tolist() == [0.5, 2.5, 4]
    assert ops.max_pool2d(x, (1, 2), stride=(1, 2)).shape == [1, 1, 2, 1]


def kind(*shape: int | str, dtype: DType = F32) -> TensorType:
    return TensorType(dtype, shape)


X, F = kind("n", 5, 6, 4), kind(3, 3, 4, 8)


@pytest.mark.parametrize(
    ("call", "types", "message"),
    [
        (ops.conv2d, [X, kind(3, 3, 3, 8)], r"conv2d\(float32\[n, 5, 6, 4\].*has 3 channels"),
        (ops.conv2d, [kind(5, 6, 4), F], r"conv2d\(.*\[batch, height, width, channels\]"),
        (ops.conv1d, [X, F], r"conv1d\(.*\[batch, length, channels\]"),
        (ops.conv2d, [X, kind(3, 4, 8)], r"conv2d\(.*the filter is"),
        (ops.conv2d, [X, kind(6, 3, 4, 8)], r"conv2d\(.*5 is smaller than a window"),
        (ops.conv2d, [kind(2, 5, 6, 4, dtype=I32), F], r"conv2d\(.*floating-point"),
        (ops.conv2d, [kind(2, 5, 6, 4, dtype=DType.float16), F], r"conv2d\(.*one type"),
        (lambda x, f: ops.conv2d(x, f, groups=3), [X, F], r"8 features in 3 groups"),
        (lambda x, f: ops.conv2d(x, f, stride=0), [X, F], r"at least 1"),
        (lambda x, f: ops.conv2d(x, f, padding=-1), [X, F], r"not negative"),
        (lambda x, f: ops.conv2d(x, f, stride=(1, 1, 1)), [X, F], r"one number or 2"),
        (lambda x, f: ops.conv2d(x, f, input_layout="CHWN"), [X, F], r"NHWC or NCHW, not CHWN"),
        (lambda x, f: ops.conv2d(x, f, bias=Tensor.ones([3])), [X, F], r"bias has shape \[8\]"),
        (lambda x: ops.max_pool2d(x, 2, padding=2), [X], r"max_pool2d\(.*smaller than a window"),
        (lambda x: ops.avg_pool2d(x, 0), [X], r"avg_pool2d\(.*rows and columns"),
        (lambda x: ops.max_pool2d(x, 2), [kind(2, 3)], r"max_pool2d\(.*\[batch, height"),
    ],
)
def test_operands_that_do_not_fit(
    call: Callable[..., Tensor], types: list[TensorType], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Graph("g", call, types)
