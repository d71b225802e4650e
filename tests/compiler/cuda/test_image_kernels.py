"""Convolution and pooling on GPUs, place by place in NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.compiler.kernels.cuda import linear
from maxtool.compiler.kernels.cuda.matrix import PIECE
from maxtool.compiler.kernels.kernel_options import (
    ChainEpilogue,
    ChainStep,
    Phases,
    Window,
    adding,
)
from maxtool.compiler.lowering.cuda.cuda_product_rules import WIDE
from tests.compiler.cuda.harness import FLOATS, build, elements, resources, run
from tests.effort import thinned

WINDOWS = [
    Window((1, 1), (1, 1), (1, 1), (0, 0), (0, 0)),
    Window((3, 2), (2, 1), (1, 1), (1, 0), (1, 1)),
    Window((2, 3), (1, 2), (2, 3), (1, 1), (0, 2)),
    Window((2, 2), (3, 3), (1, 1), (0, 0), (0, 0)),
]
RESIDUAL = (*adding(2), ChainStep("relu", (4,)))
SIZE = (7, 9)
RTOL = {"float32": 1e-5, "float16": 2**-9, "bfloat16": 2**-6, "float64": 1e-12}


def outputs(window: Window, sizes: tuple[int, ...] = SIZE) -> tuple[int, ...]:
    """The sizes of the result of an image."""
    spread = zip(sizes, *(getattr(window, name) for name in Window.__slots__), strict=True)
    return tuple(
        (one + before + after - dilation * (size - 1) - 1) // stride + 1
        for one, size, stride, dilation, before, after in spread
    )


def places(window: Window, pixel: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield each index of the window, and its index in the input or its padding."""
    for tap in np.ndindex(window.size):
        parts = zip(pixel, tap, window.stride, window.dilation, window.before, strict=True)
        yield tap, tuple(at * s + t * d - low for at, t, s, d, low in parts)


def inside(at: tuple[int, ...], sizes: tuple[int, ...] = SIZE) -> bool:
    return all(0 <= one < size for one, size in zip(at, sizes, strict=True))


def convolved(
    window: Window, x: np.ndarray, f: np.ndarray, bias: np.ndarray, groups: int = 1
) -> np.ndarray:
    """The convolution of images, in float64; ``f`` is ``[window..., channels, features]``."""
    sizes = outputs(window, x.shape[1:-1])
    result = np.zeros((len(x), *sizes, len(bias))) + bias.astype("f8")
    filters = np.split(f.astype("f8"), groups, -1)
    for pixel in np.ndindex(*sizes):
        for tap, at in places(window, pixel):
            if inside(at, x.shape[1:-1]):
                parts = np.split(x[:, *at].astype("f8"), groups, -1)
                both = zip(parts, filters, strict=True)
                result[:, *pixel] += np.concatenate([part @ one[tap] for part, one in both], -1)
    return result


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("groups", [1, 2])
def test_convolution(dtype: str, window: Window, groups: int) -> None:
    channels, features = 4, 6
    x = elements(0, (2, *SIZE, channels), dtype)
    f = elements(1, (*window.size, channels // groups, features), dtype)
    bias = elements(2, (features,), dtype)
    expected = convolved(window, x, f, bias, groups)
    options = {"channels": channels, "features": features, "groups": groups}
    into = np.full(expected.shape, 7, x.dtype)
    actual = run("convolution", x, f, bias, into=into, dtype=dtype, window=window, **options)
    close = {"rtol": RTOL[dtype], "atol": RTOL[dtype]}
    np.testing.assert_allclose(actual.astype("f8"), expected, **close)


def check_product(
    dtype: str,
    window: Window,
    sizes: tuple[int, ...],
    channels: int,
    features: int,
    groups: int = 1,
) -> None:
    """A convolution as a product, with a bias of its type, a residual and an activation."""
    inner, outer = channels // groups, features // groups
    x = elements(0, (*sizes, channels), dtype)
    f = elements(1, (*window.size, inner, features), dtype)
    bias = elements(2, (features,), dtype)
    sums = convolved(window, x, f, bias, groups)
    more = elements(3, (sums[..., 0].size, features), "float32")
    expected = np.maximum(sums + more.reshape(sums.shape), 0)
    matrices = np.moveaxis(f, -1, 0).reshape(groups, outer, -1)
    actual = run(
        "implicit_gemm",
        x,
        matrices,
        bias,
        more,
        into=np.full(expected.shape, np.nan, "f4"),
        window=window,
        weight_dtype=dtype,
        grouped=groups > 1,
        aligned=inner % PIECE[dtype] == 0,
        fours=outer % 4 == 0,
        wide=outer >= WIDE,
        after=ChainEpilogue((True, False), RESIDUAL, (dtype, "float32")),
    )
    scale = np.abs(expected).max(initial=1)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-6 * scale)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(
    ("channels", "features", "groups"), [(8, 12, 1), (3, 7, 1), (16, 32, 2), (12, 6, 2)]
)
def test_products(dtype: str, window: Window, channels: int, features: int, groups: int) -> None:
    check_product(dtype, window, (2, *SIZE), channels, features, groups)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("sizes", [(5, 70), (2, 67, 3), (3, 2, 3, 11)])
def test_products_of_several_tiles(dtype: str, sizes: tuple[int, ...]) -> None:
    """Tiles that end amid an image and a row, of lines, images and volumes."""
    spatial = len(sizes) - 1
    taps, ones = (3, 1, 3)[-spatial:], (1,) * spatial
    around = tuple(size // 2 for size in taps)
    check_product(dtype, Window(taps, ones, ones, around, around), sizes, 8, 68)


@pytest.mark.parametrize("dtype", thinned(["bfloat16", "float16", "float32"], "bfloat16"))
def test_products_of_large_tiles(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    monkeypatch.setattr(linear, "FULL", 1)
    window = Window((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
    check_product(dtype, window, (2, 9, 10), 40, 264)


ALONG = st.tuples(*(st.integers(*limits) for limits in [(1, 4), (1, 3), (1, 3), (0, 3), (0, 3)]))


@st.composite
def windows(draw: st.DrawFn) -> tuple[Window, tuple[int, ...]]:
    """A window of any dimensions, and the sizes of images that have it."""
    parts = draw(st.lists(ALONG, min_size=1, max_size=3))
    window = Window(*zip(*parts, strict=True))
    least = [
        max(1, dilation * (size - 1) + 1 - before - after)
        for size, _, dilation, before, after in parts
    ]
    most = {1: 80, 2: 12, 3: 5}[len(parts)]
    sizes = [draw(st.integers(size, max(size, most))) for size in least]
    return window, (draw(st.integers(0, 2)), *sizes)


@pytest.mark.slow
@given(
    st.sampled_from(["float32", "bfloat16"]),
    windows(),
    st.sampled_from([(1, 1, 1), (3, 5, 1), (8, 4, 1), (16, 32, 2), (9, 6, 3)]),
)
@settings(max_examples=60, deadline=None)
def test_products_of_any_window(
    dtype: str, image: tuple[Window, tuple[int, ...]], channels: tuple[int, int, int]
) -> None:
    window, sizes = image
    check_product(dtype, window, sizes, *channels)


def check_depthwise(dtype: str, window: Window, sizes: tuple[int, ...], channels: int) -> None:
    x = elements(0, (*sizes, channels), dtype)
    f = elements(1, (*window.size, channels), dtype)
    bias = elements(2, (channels,), dtype)
    sums = convolved(window, x, f[..., None, :], bias, channels)
    expected = np.maximum(sums, 0)
    actual = run(
        "depthwise",
        x,
        f,
        bias,
        into=np.full(expected.shape, np.nan, "f4"),
        window=window,
        dtype=dtype,
        fours=channels % 4 == 0,
        after=ChainEpilogue((True,), (*adding(1), ChainStep("relu", (2,))), (dtype,)),
    )
    scale = np.abs(expected).max(initial=1)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6 * scale)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("channels", [8, 3])
def test_each_channel_by_itself(dtype: str, window: Window, channels: int) -> None:
    check_depthwise(dtype, window, (2, *SIZE), channels)


@pytest.mark.slow
@given(st.sampled_from(["float32", "bfloat16"]), windows(), st.sampled_from([1, 4, 516]))
@settings(max_examples=40, deadline=None)
def test_each_channel_of_any_window(
    dtype: str, image: tuple[Window, tuple[int, ...]], channels: int
) -> None:
    window, sizes = image
    if len(sizes) > 2:  # a line is an image of one row
        check_depthwise(dtype, window, sizes, channels)


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
    options = {"window": window, "fours": True, "after": ChainEpilogue((True, False), RESIDUAL)}
    product = {**options, "grouped": True, "weight_dtype": "float16"}
    phases = {**product, "grouped": False, "wide": True, "phases": Phases((2, 2), (3, 3), (1, 1))}
    functions = {
        "phases": build("implicit_gemm", **phases, aligned=True),
        "convolution": build("convolution", **image, features=8, groups=2),
        "channels": build("depthwise", **options, dtype="float32"),
        "pieces": build("implicit_gemm", **product, aligned=True, wide=False),
        "values": build("implicit_gemm", **product, aligned=False, wide=False),
        "max": build("pool", op="max_pool", count_padding=False, **image),
        "mean": build("pool", op="avg_pool", count_padding=True, **image),
    }
    result = dict(resources(functions))
    assert len(result) == 2 * len(functions)
    assert not [name for name, one in result.items() if one.stack or one.spills]
