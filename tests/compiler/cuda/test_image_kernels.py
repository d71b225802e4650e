"""Convolution and pooling on GPUs, place by place in NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from maxtool.compiler.kernels.kernel_options import Window
from tests.compiler.cuda.harness import FLOATS, build, elements, resources, run

WINDOWS = [
    Window((1, 1), (1, 1), (1, 1), (0, 0), (0, 0)),
    Window((3, 2), (2, 1), (1, 1), (1, 0), (1, 1)),
    Window((2, 3), (1, 2), (2, 3), (1, 1), (0, 2)),
    Window((2, 2), (3, 3), (1, 1), (0, 0), (0, 0)),
]
SIZE = (7, 9)
RTOL = {"float32": 1e-5, "float16": 2**-9, "bfloat16": 2**-6, "float64": 1e-12}


def outputs(window: Window) -> tuple[int, int]:
    """Rows and columns of the result."""
    spread = zip(SIZE, *(getattr(window, name) for name in Window.__slots__), strict=True)
    return tuple(
        (one + before + after - dilation * (size - 1) - 1) // stride + 1
        for one, size, stride, dilation, before, after in spread
    )


def places(window: Window, pixel: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield each index of the window, and its index in the input or its padding."""
    for tap in np.ndindex(window.size):
        parts = zip(pixel, tap, window.stride, window.dilation, window.before, strict=True)
        yield tap, tuple(at * s + t * d - low for at, t, s, d, low in parts)


def inside(at: tuple[int, ...]) -> bool:
    return all(0 <= one < size for one, size in zip(at, SIZE, strict=True))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("groups", [1, 2])
def test_convolution(dtype: str, window: Window, groups: int) -> None:
    channels, features = 4, 6
    x = elements(0, (2, *SIZE, channels), dtype)
    f = elements(1, (*window.size, channels // groups, features), dtype)
    bias = elements(2, (features,), dtype)
    expected = np.zeros((2, *outputs(window), features))
    for row, column in np.ndindex(expected.shape[1:3]):
        expected[:, row, column] = bias.astype("f8")
        for tap, at in places(window, (row, column)):
            if inside(at):
                parts = np.split(x[:, *at].astype("f8"), groups, -1)
                filters = np.split(f[tap].astype("f8"), groups, -1)
                sums = [left @ right for left, right in zip(parts, filters, strict=True)]
                expected[:, row, column] += np.concatenate(sums, -1)
    options = {"channels": channels, "features": features, "groups": groups}
    into = np.full(expected.shape, 7, x.dtype)
    actual = run("convolution", x, f, bias, into=into, dtype=dtype, window=window, **options)
    close = {"rtol": RTOL[dtype], "atol": RTOL[dtype]}
    np.testing.assert_allclose(actual.astype("f8"), expected, **close)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("op", ["max_pool", "avg_pool", "avg_with_padding"])
def test_pool(dtype: str, window: Window, op: str) -> None:
    x = elements(0, (2, *SIZE, 3), dtype)
    expected = np.zeros((2, *outputs(window), 3))
    for row, column in np.ndindex(expected.shape[1:3]):
        seen = [at for _, at in places(window, (row, column)) if inside(at)]
        values = np.stack([x[:, *at].astype("f8") for at in seen])
        # The padding after the last row or column ends somewhere, too.
        padded = [at for _, at in places(window, (row, column))]
        limits = [size + after for size, after in zip(SIZE, window.after, strict=True)]
        counted = [at for at in padded if all(a < b for a, b in zip(at, limits, strict=True))]
        count = len(counted) if op == "avg_with_padding" else len(seen)
        expected[:, row, column] = values.max(0) if op[:3] == "max" else values.sum(0) / count
    options = {"op": op.replace("with_padding", "pool"), "dtype": dtype, "window": window}
    options |= {"channels": 3, "count_padding": op == "avg_with_padding"}
    actual = run("pool", x, into=np.full(expected.shape, 7, x.dtype), **options)
    np.testing.assert_allclose(actual.astype("f8"), expected, rtol=RTOL[dtype], atol=1e-6)


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_transposed_convolution(spatial: int) -> None:
    sizes, kernel = (3, 2, 2)[:spatial], (2, 3, 1)[:spatial]
    zeros = (0,) * spatial
    window = Window(kernel, (2, 1, 3)[:spatial], (1, 2, 1)[:spatial], zeros, zeros)
    x, f = elements(0, (2, *sizes, 4), "float32"), elements(1, (*kernel, 2, 6), "float32")
    bias = elements(2, (6,), "float32")
    spread = zip(sizes, window.stride, window.dilation, kernel, strict=True)
    whole = [(size - 1) * step + reach * (taps - 1) + 1 for size, step, reach, taps in spread]
    expected = np.zeros((2, *whole, 6)) + bias
    for at in np.ndindex(*sizes):
        for tap in np.ndindex(*kernel):
            rows = zip(at, window.stride, tap, window.dilation, strict=True)
            place = tuple(one * step + other * reach for one, step, other, reach in rows)
            parts = zip(np.split(x[:, *at], 2, -1), np.split(f[tap], 2, -1), strict=True)
            expected[:, *place] += np.concatenate([one @ other for one, other in parts], -1)
    options: dict[str, Any] = {"channels": 4, "features": 6, "groups": 2, "transposed": True}
    into = np.full(expected.shape, 7, x.dtype)
    actual = run("convolution", x, f, bias, into=into, dtype="float32", window=window, **options)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_pool_indices() -> None:
    window = Window((3, 2), (2, 1), (1, 1), (1, 0), (1, 1))
    x = elements(0, (2, *SIZE, 3), "float32")
    x[0, 2, 3] = np.nan
    expected = np.zeros((2, *outputs(window), 3), "i8")
    for row, column in np.ndindex(expected.shape[1:3]):
        seen = [at for _, at in places(window, (row, column)) if inside(at)]
        first = np.stack([x[:, *at] for at in seen]).argmax(0)
        expected[:, row, column] = np.array([y * SIZE[1] + z for y, z in seen])[first]
    options: dict[str, Any] = {"dtype": "float32", "window": window, "channels": 3}
    actual = run("pool_indices", x, into=np.full(expected.shape, 7, "i8"), **options)
    np.testing.assert_array_equal(actual, expected)


def test_what_they_take_of_a_gpu() -> None:
    window = WINDOWS[1]
    image = {"dtype": "float32", "window": window, "channels": 4}
    functions = {
        "convolution": build("convolution", **image, features=8, groups=2),
        "max": build("pool", op="max_pool", count_padding=False, **image),
        "mean": build("pool", op="avg_pool", count_padding=True, **image),
    }
    result = dict(resources(functions))
    assert len(result) == 2 * len(functions)
    assert not [name for name, one in result.items() if one.stack or one.spills]
