"""Convolutions of bytes: exact sums on every instruction set that runs here, and what is fused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm

from maxtool.compiler.cpu_target import CpuTarget, cpu_target
from maxtool.compiler.filter_storage import IntegerFilterForm
from maxtool.compiler.kernels.cpu.byte_dot import byte_tiles, runs
from maxtool.compiler.kernels.cpu.integer_convolution import integer_convolution
from maxtool.compiler.kernels.kernel_options import ChainEpilogue, Window
from maxtool.compiler.lowering.module_lowering import ModuleLowering
from maxtool.compiler.lowering_plan import LoweringPlan
from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, Weight, executor, ops
from maxtool.parity.evaluator import evaluate

from .kernels.assembly import assembly, loops_with, spills
from .kernels.harness import HOST, compiled_for

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(0)
LIMITS = {"int8": (-128, 128), "uint8": (0, 256)}

# Rows and columns, channels, features, the filter's rows and columns, and the window.
CASES: list[tuple[tuple[int, int], int, int, tuple[int, int], dict[str, Any]]] = [
    ((7, 9), 16, 64, (3, 3), {"padding": 1}),
    ((15, 14), 3, 40, (7, 7), {"padding": 3, "stride": 2}),
    ((6, 6), 24, 33, (1, 1), {}),
    ((5, 6), 7, 12, (1, 1), {}),
    ((9, 8), 8, 70, (1, 1), {"stride": 2}),
    ((11, 10), 5, 7, (3, 2), {"dilation": (1, 2), "padding": (1, 0, 2, 1)}),
    ((11, 10), 6, 7, (1, 1), {"padding": (0, 2, 1, 0), "dilation": 2, "stride": (1, 3)}),
    ((5, 40), 20, 100, (2, 5), {"padding": (0, 1, 4, 0), "stride": (2, 1)}),
]
# A CPU with each instruction set, and an instruction of its products.
CPUS = {
    "x86-64": "pmaddwd",
    "x86-64-v3": "vpmaddwd",
    "x86-64-v4": "vpmaddwd",
    "cascadelake": "vpdpbusd",
    "sierraforest": "vpdpbusd",
    "neoverse-n1": "sdot",
}
PARTS = {
    "x86-64": "sse2",
    "x86-64-v3": "avx2",
    "x86-64-v4": "avx512bw",
    "cascadelake": "avx512vnni",
}
NATIVE = [name for name, part in PARTS.items() if part in HOST.features or part == "sse2"]


def drawn(dtype: str, *shape: int) -> Array:
    return rng.integers(*LIMITS[dtype], shape, dtype)


def compared(
    call: Any,
    x: Array,
    weights: dict[str, Array],
    *,
    exactly: bool = True,
    shape: list[int | str] | None = None,
) -> None:
    """Compare compiled code with the definition."""

    def traced(x: Tensor) -> list[Tensor]:
        own = {
            name: Weight(name, DType.from_numpy(value.dtype), value.shape)
            for name, value in weights.items()
        }
        return [call(x, **own)]

    kind = TensorType(DType.from_numpy(x.dtype), shape or ["n", *x.shape[1:]])
    graph = Graph("g", traced, [kind])
    (wanted,) = evaluate(graph, [x], weights)
    (got,) = executor.find_executor().compile(graph, weights)(Tensor(x))
    if exactly:
        np.testing.assert_array_equal(got.to_numpy(), wanted)
    else:
        off = np.abs(got.to_numpy().astype(int) - wanted)
        assert off.max() <= 1
        assert off.mean() < 1e-3


@pytest.mark.parametrize(("size", "channels", "features", "taps", "window"), CASES)
@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 0), ("uint8", 131), ("int8", -128)])
def test_direct(
    size: tuple[int, int],
    channels: int,
    features: int,
    taps: tuple[int, int],
    window: dict[str, Any],
    dtype: str,
    zero: int,
) -> None:
    weights = {
        "f": drawn("int8", *taps, channels, features),
        "bias": rng.integers(-99999, 99999, features, "i4"),
    }

    def call(x: Tensor, f: Tensor, bias: Tensor) -> Tensor:
        return ops.integer_convolution(x, f, zero, bias=bias, **window)

    compared(call, drawn(dtype, 2, *size, channels), weights)


@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 131), ("int8", -128)])
@pytest.mark.parametrize(
    ("channels", "groups", "taps", "window"),
    [
        (16, 1, (3, 3), {"padding": 1}),
        (16, 1, (1, 1), {}),
        (16, 1, (1, 1), {"stride": 2}),
        (7, 1, (2, 1), {"stride": (1, 2)}),
        (12, 12, (3, 3), {"padding": 1, "stride": 2}),
    ],
)
def test_images_of_any_size(
    dtype: str,
    zero: int,
    channels: int,
    groups: int,
    taps: tuple[int, int],
    window: dict[str, Any],
) -> None:
    weights = {"f": drawn("int8", *taps, channels // groups, 12 if groups > 1 else 70)}

    def call(x: Tensor, f: Tensor) -> Tensor:
        return ops.integer_convolution(x, f, zero, groups=groups, **window)

    for size in ((2, 1), (3, 5), (4, 40)):
        x = drawn(dtype, 2, *size, channels)
        compared(call, x, weights, shape=["n", "h", "w", channels])


@pytest.mark.sampled
@pytest.mark.parametrize("channels", [8, 37, 64])
@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 99), ("int8", -128)])
@pytest.mark.parametrize(
    ("taps", "window"),
    [
        ((3, 3), {"padding": 1}),
        ((5, 5), {"padding": 2, "stride": 2}),
        ((2, 3), {"dilation": (2, 4), "padding": (1, 1, 3, 4)}),
    ],
)
def test_depthwise(
    channels: int, dtype: str, zero: int, taps: tuple[int, int], window: dict[str, Any]
) -> None:
    weights = {"f": drawn("int8", *taps, 1, channels)}

    def call(x: Tensor, f: Tensor) -> Tensor:
        return ops.integer_convolution(x, f, zero, groups=channels, **window)

    compared(call, drawn(dtype, 2, 9, 22, channels), weights)


def test_lines_groups_and_filters_of_every_origin() -> None:
    weights = {"f": drawn("int8", 3, 8, 20), "g": drawn("int8", 12, 2, 3)}
    fixed = Tensor(drawn("int8", 2, 8, 12))

    def call(x: Tensor, f: Tensor, g: Tensor) -> Tensor:
        first = ops.integer_convolution(x, f, 7, 2, padding=1)
        second = ops.integer_convolution(x, fixed, 7, 2)
        third = ops.integer_convolution(x, ops.permute(g, (2, 1, 0)), 7, 2, padding=1, groups=4)
        return ops.concat([first, second, third], -1)

    compared(call, drawn("uint8", 2, 30, 8), weights)


def requantized(sums: Tensor, scale: Any, zero: int, low: int, high: int, to: DType) -> Tensor:
    units = ops.round(ops.cast(sums, DType.float32) * scale) + float(zero)
    return ops.cast(ops.clamp(units, float(low), float(high)), to)


@pytest.mark.parametrize("to", [DType.uint8, DType.int8])
def test_sums_become_bytes_in_the_kernel(to: DType) -> None:
    """A block of a quantized network, the sum of two branches included."""
    weights = {"f": drawn("int8", 3, 3, 24, 40), "g": drawn("int8", 1, 1, 40, 24)}
    scale = (rng.random(40) * 1e-3 + 1e-4).astype("f4")
    low, high, zero = (0, 255, 10) if to is DType.uint8 else (-128, 127, -5)

    def real(x: Tensor, zero: int, scale: float) -> Tensor:
        return (ops.cast(x, DType.float32) - float(zero)) * scale

    def call(x: Tensor, f: Tensor, g: Tensor) -> Tensor:
        first = requantized(
            ops.integer_convolution(x, f, zero, padding=1), Tensor(scale), zero, low, high, to
        )
        sums = ops.integer_convolution(first, g, zero)
        second = requantized(sums, 0.002, zero, low, high, to)
        total = ops.relu(real(second, zero, 0.02) + real(x, zero, 0.03)) / 0.05
        cut = ops.clamp(ops.round(total) + float(low), float(low), float(high))
        return ops.cast(cut, to)

    compared(call, drawn(to.value, 2, 7, 9, 24), weights, exactly=False)


def kernel_for(
    target: CpuTarget, case: tuple[Any, ...], dtype: str, zero: int
) -> tuple[object, IntegerFilterForm]:
    """The kernel of a case for a CPU, and how its filter lies."""
    size, channels, features, taps, given = case
    around = np.broadcast_to(given.get("padding", 0), 4).tolist()
    stride, dilation = (
        tuple(np.broadcast_to(given.get(name, 1), 2).tolist()) for name in ("stride", "dilation")
    )
    before, after = (around[0], around[2]), (around[1], around[3])
    window = Window(taps, stride, dilation, before, after)
    sums = ChainEpilogue(out="int32")
    kernel = integer_convolution(target, window, size, channels, features, dtype, zero, sums)
    block = byte_tiles(target, window, size, channels, features).block
    return kernel, IntegerFilterForm((3, 0, 1, 2), block, runs(window, channels)[0])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", NATIVE)
def test_instruction_sets(name: str, case: tuple[Any, ...]) -> None:
    size, channels, features, taps, given = case
    dtype, zero = ("uint8", 200) if channels % 2 else ("int8", 100)
    target = cpu_target(f"cpu:{name}")
    kernel, form = kernel_for(target, case, dtype, zero)
    x, f = drawn(dtype, 2, *size, channels), drawn("int8", *taps, channels, features)
    x.flat[:] = np.where(rng.random(x.size) < 0.5, LIMITS[dtype][1] - 1, x.ravel())
    f[..., 0] = -128  # sums of pairs that 16 bits do not hold
    bias = rng.integers(-9, 9, features, "i4")
    kinds = [TensorType(DType.from_numpy(one.dtype), one.shape) for one in (x, f, bias)]
    graph = Graph(
        "g", lambda x, f, b: [ops.integer_convolution(x, f, zero, bias=b, **given)], kinds
    )
    (wanted,) = evaluate(graph, [x, f, bias])
    np.testing.assert_array_equal(form.restore(form.store(f), f.shape), f)
    out = tvm.runtime.tensor(np.full(wanted.shape, -1, "i4"))
    arguments = [tvm.runtime.tensor(one) for one in (x, form.store(f), bias)]
    compiled_for(target, kernel)(*arguments, out)
    np.testing.assert_array_equal(out.numpy(), wanted)


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("name", [name for name in CPUS if name != "x86-64"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_instructions(name: str, dtype: str) -> None:
    """The loop over terms has the products, and keeps nothing on the stack."""
    target = cpu_target(f"cpu:{name}")
    case = ((28, 28), 64, 64, (3, 3), {"padding": 1})
    kernel, _ = kernel_for(target, case, dtype, 3)
    loops = loops_with(assembly(target, kernel), CPUS[name])
    assert loops
    assert not [line for loop in loops for line in spills(loop, target)]


def test_a_block_is_a_kernel_for_each_convolution() -> None:
    """Scales of each channel, rounding and the sum of two branches included."""

    def call(x: Tensor) -> list[Tensor]:
        filters = [Tensor(drawn("int8", 3, 3, 24, 24)) for _ in range(2)]
        scale = Tensor(np.full((1, 1, 1, 24), 1e-3, "f4"))
        first = requantized(
            ops.integer_convolution(x, filters[0], 3, padding=1), scale, 3, 0, 255, DType.uint8
        )
        sums = ops.integer_convolution(first, filters[1], 3, padding=1)
        real = (ops.cast(x, DType.float32) - 3.0) * 0.01 + ops.cast(sums, DType.float32) * scale
        cut = ops.clamp(ops.round(real * 20.0) + 3.0, 0.0, 255.0)
        return [ops.cast(cut, DType.uint8)]

    graph = Graph("g", call, [TensorType(DType.uint8, ["n", 9, 8, 24])])
    lowering = ModuleLowering(LoweringPlan([graph], HOST))
    lowering.entry(graph)
    names = [str(name.name_hint) for name in lowering.module().functions]
    kernels = [name for name in names if not name.startswith("g")]
    assert len(kernels) == 2
    assert all(name.startswith("convolution_uint8_") for name in kernels)
