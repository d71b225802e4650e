"""Convolutions by Winograd's transforms: what they compute, how exactly, on any instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maxtool.compiler.cpu_target import CpuTarget, cpu_target
from maxtool.compiler.filter_storage import WinogradFilterForm
from maxtool.compiler.kernels.cpu.winograd_convolution import winograd_convolution
from maxtool.compiler.kernels.cpu.winograd_tiles import winograd_tiles_of
from maxtool.compiler.kernels.kernel_options import ChainEpilogue, Window
from maxtool.compiler.winograd import WINOGRAD

from .assembly import assembly, loops_with, spills
from .harness import HOST, call, compiled, compiled_for, error, normal

Array = np.ndarray[Any, Any]

# Padding above, to the left, below and to the right.
Around = tuple[int, int, int, int]
EVEN = (1, 1, 1, 1)

# Rows and columns, channels, features, padding.
CASES: list[tuple[tuple[int, int], int, int, Around]] = [
    ((1, 1), 16, 16, EVEN),
    ((3, 3), 33, 70, (0, 0, 0, 0)),
    ((17, 3), 24, 37, EVEN),
    ((17, 18), 64, 64, EVEN),
    ((6, 11), 5, 3, (0, 1, 2, 3)),
    ((2, 9), 21, 100, (4, 0, 0, 5)),
    ((28, 28), 256, 32, EVEN),
]
# A CPU with each instruction set, and an instruction of its products.
CPUS = {
    "x86-64": "mulps",
    "x86-64-v3": "vfmadd231ps",
    "x86-64-v4": "vfmadd231ps",
    "neoverse-n1": "fmla",
}
PARTS = {"x86-64": "sse2", "x86-64-v3": "avx2", "x86-64-v4": "avx512f"}
NATIVE = [
    name
    for name, part in PARTS.items()
    if HOST.triple.startswith("x86") and part in {*HOST.features, "sse2"}
]


def window_of(around: Around) -> Window:
    return Window((3, 3), (1, 1), (1, 1), around[:2], around[2:])


def exactly(x: Array, f: Array, around: Around) -> Array:
    """A convolution in float64, of a filter of [rows, columns, channels, features]."""
    top, left, below, right = around
    padded = np.pad(x.astype(float), ((0, 0), (top, below), (left, right), (0, 0)))
    rows, columns = padded.shape[1] - 2, padded.shape[2] - 2
    return np.sum(
        [
            padded[:, i : i + rows, j : j + columns] @ f[i, j].astype(float)
            for i in range(3)
            for j in range(3)
        ],
        axis=0,
    )


def computed(
    x: Array, f: Array, bias: Array, around: Around, outputs: int, target: CpuTarget = HOST
) -> Array:
    """The same by a kernel, with a bias."""
    *_, channels, features = f.shape
    sizes = target.tile, window_of(around), x.shape[1:3], channels, features, outputs
    block = winograd_tiles_of(*sizes).block
    stored = WinogradFilterForm((3, 0, 1, 2), block, outputs).store(f)
    arguments = *sizes, ChainEpilogue()
    if target is HOST:
        kernel = compiled(winograd_convolution, *arguments)
    else:
        kernel = compiled_for(target, winograd_convolution(*arguments))
    shape = exactly(x[:1], f, around).shape
    return call(kernel, x, stored, bias, shape=(len(x), *shape[1:]))


@pytest.mark.parametrize("outputs", WINOGRAD)
@pytest.mark.parametrize(("size", "channels", "features", "around"), CASES)
def test_what_numpy_computes(
    size: tuple[int, int], channels: int, features: int, around: Around, outputs: int
) -> None:
    """Each of several images has the bits that it has alone."""
    f, bias = normal(1, 3, 3, channels, features), normal(2, features)
    x = normal(0, 8, *size, channels)
    several = computed(x, f, bias, around, outputs)
    assert error(several, exactly(x, f, around) + bias) < 2e-6
    np.testing.assert_array_equal(computed(x[3:4], f, bias, around, outputs), several[3:4])


@pytest.mark.parametrize("outputs", WINOGRAD)
@pytest.mark.parametrize("name", NATIVE)
def test_instruction_sets(name: str, outputs: int) -> None:
    f, bias, x = normal(1, 3, 3, 21, 37), normal(2, 37), normal(0, 2, 7, 10, 21)
    result = computed(x, f, bias, EVEN, outputs, cpu_target(f"cpu:{name}"))
    assert error(result, exactly(x, f, EVEN) + bias) < 2e-6


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("name", CPUS)
@pytest.mark.parametrize("outputs", WINOGRAD)
def test_the_loop_of_products_keeps_nothing_on_the_stack(name: str, outputs: int) -> None:
    target = cpu_target(f"cpu:{name}")
    sizes = target.tile, window_of(EVEN), (56, 56), 64, 64, outputs
    kernel = winograd_convolution(*sizes, ChainEpilogue())
    tiles = winograd_tiles_of(*sizes)
    sums = tiles.rows * tiles.block // target.tile.width
    code = assembly(target, kernel)
    loops = [
        loop
        for loop in loops_with(code, CPUS[name])
        if sum(f"\t{CPUS[name]}\t" in line for line in loop) == sums
    ]
    assert loops
    assert not [line for loop in loops for line in spills(loop, target)]


@pytest.mark.parametrize(("outputs", "most"), [(2, 6e-7), (4, 1.6e-6)])
def test_errors_beside_float64(outputs: int, most: float) -> None:
    """Bounds for 256 channels; adding the products one after the other makes errors of 6e-7."""
    f, x = normal(1, 3, 3, 256, 64), np.maximum(normal(0, 1, 14, 14, 256), 0)
    exact = exactly(x, f, EVEN)
    off = computed(x, f, np.zeros(64, "f4"), EVEN, outputs) - exact
    size = np.sqrt(np.mean(exact**2))
    assert np.sqrt(np.mean(off**2)) < most * size
    assert np.abs(off).max() < 20 * most * size


@pytest.mark.parametrize("outputs", WINOGRAD)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_stay_in_their_tiles(value: float, outputs: int) -> None:
    """A pixel makes all outputs so that follow from it, and others of its tiles alone."""
    f, x = normal(1, 3, 3, 16, 16), normal(0, 1, 16, 16, 16)
    x[0, 7, 9, 3] = value
    result = computed(x, f, normal(2, 16), EVEN, outputs)
    starts = range(-1, 15, outputs)
    rows, columns = (
        [start + 1 for start in starts if start <= at < start + outputs + 2] for at in (7, 9)
    )
    others = np.ones((16, 16), bool)
    for row in rows:
        for column in columns:
            others[row : row + outputs, column : column + outputs] = False
    assert np.isfinite(result[0][others]).all()
    reached = ~np.isfinite(exactly(x, f, EVEN)[0])
    assert reached.any()
    assert not np.isfinite(result[0][reached]).any()


def test_transforms_are_exact_in_float64() -> None:
    """A tile's row by points and at infinity is the sum over the window's three terms."""
    for outputs, winograd in WINOGRAD.items():
        signs = [sign * square**0.5 for square in winograd.squares for sign in (1, -1)]
        points = [0.0, *signs]
        values = normal(0, winograd.inputs).astype(float)
        taps = normal(1, 3).astype(float)
        inputs = [
            np.poly(points[:i] + points[i + 1 :])[::-1] @ values[:-1] for i in range(len(points))
        ]
        products = (winograd.of_filters @ taps) * [*inputs, np.poly(points)[::-1] @ values]
        found = [
            sum(point**i * product for point, product in zip(points, products, strict=False))
            for i in range(outputs)
        ]
        found[-1] += products[-1]
        expected = [values[i : i + 3] @ taps for i in range(outputs)]
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
