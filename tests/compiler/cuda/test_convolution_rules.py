"""Convolutions lowered for GPUs: which kernels, and what they compute beside float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from maxtool.compiler.cuda.cuda_target import cuda_target
from maxtool.compiler.lowering.module_lowering import ModuleLowering
from maxtool.compiler.lowering_plan import LoweringPlan
from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, Weight, ops
from maxtool.parity.evaluator import evaluate
from tests.simt.model import TARGET, Simulation

Array: TypeAlias = np.ndarray[Any, Any]
Call: TypeAlias = Callable[..., Tensor]

F16, F32, F64 = DType.float16, DType.float32, DType.float64
PLAIN = ["convolution"]


def drawn(*shape: int) -> Array:
    random = np.random.default_rng(0)
    return random.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]))


def traced(call: Call, dtype: DType, x: tuple[int | str, ...], weights: dict[str, Array]) -> Graph:
    def forward(image: Tensor) -> list[Tensor]:
        own = {name: Weight(name, dtype, value.shape) for name, value in weights.items()}
        return [call(image, **own)]

    return Graph("main", forward, [TensorType(dtype, x)])


def kernels(graph: Graph) -> list[str]:
    """The kernels that a graph becomes."""
    lowering = ModuleLowering(LoweringPlan([graph], cuda_target(TARGET)))
    lowering.entry(graph)
    names = [str(name.name_hint) for name in lowering.module().functions]
    return sorted(name for name in names if name != graph.name)


def check(
    call: Call,
    *sizes: tuple[int, ...],
    expected: list[str],
    dtype: DType = F32,
    shape: tuple[int | str, ...] | None = None,
    **weights: Array,
) -> None:
    """Compare what kernels of a graph compute, for inputs of some sizes, with float64."""
    typed = {name: value.astype(dtype.to_numpy()) for name, value in weights.items()}
    graph = traced(call, dtype, shape or ("n", *sizes[0][1:]), typed)
    assert kernels(graph) == expected
    program = Simulation().program([graph])
    bound = program.bind(typed)
    function = program.function("main", bound, [value.type for value in graph.outputs])
    for size in sizes:
        x = drawn(*size).astype(dtype.to_numpy())
        (exact,) = evaluate(graph, [x], typed)
        (result,) = function([Tensor(x)])
        error = 2e-3 if dtype is F16 else 1e-5
        np.testing.assert_allclose(result.to_numpy().astype("f8"), exact, rtol=error, atol=error)


def test_a_chain_runs_in_the_kernel() -> None:
    """A residual, an activation and a row for all pixels."""

    def call(x: Tensor, f: Tensor, bias: Tensor, g: Tensor) -> Tensor:
        first = ops.silu(ops.conv2d(x, f, bias=bias, padding=1))
        return ops.relu(ops.conv2d(first, g, padding=1) + first) * bias

    weights = {"f": drawn(3, 3, 8, 12), "bias": drawn(12), "g": drawn(3, 3, 12, 12)}
    expected = ["convolution_add_add_relu_mul", "convolution_add_silu"]
    check(call, (2, 5, 7, 8), (1, 5, 7, 8), expected=expected, **weights)


def test_filters_that_a_graph_permutes_lie_as_matrices() -> None:
    def call(x: Tensor, f: Tensor) -> Tensor:
        return ops.conv2d(x, f, filter_layout="FCRS")

    weights = {"f": drawn(12, 8, 3, 2)}
    check(call, (2, 5, 4, 8), expected=["convolution_add"], **weights)
    graph = traced(call, F32, (1, 5, 4, 8), weights)
    storage = LoweringPlan([graph], cuda_target(TARGET)).storage["f"]
    assert storage.stored_shape == (12, 3, 2, 8)
    values = weights["f"].astype("f4")
    np.testing.assert_array_equal(storage.restore(storage.store(values)), values)


def test_a_filter_that_is_computed() -> None:
    def call(x: Tensor, f: Tensor) -> Tensor:
        return ops.conv2d(x, ops.relu(f))

    weights = {"f": drawn(3, 2, 8, 12)}
    expected = ["convolution_add", "permute_3_0_1_2_float32", "relu_12_float32"]
    check(call, (2, 5, 4, 8), expected=expected, **weights)


def test_single_pixels_are_a_linear_product() -> None:
    def call(x: Tensor, f: Tensor, bias: Tensor) -> Tensor:
        return ops.relu(ops.conv2d(x, f, bias=bias))

    weights = {"f": drawn(1, 1, 12, 20), "bias": drawn(20)}
    check(call, (1, 3, 5, 12), (4, 3, 5, 12), expected=["linear_float32"], **weights)


@pytest.mark.parametrize("groups", [2, 4])
def test_groups(groups: int) -> None:
    def call(x: Tensor, f: Tensor, bias: Tensor) -> Tensor:
        return ops.gelu(ops.conv2d(x, f, bias=bias, groups=groups, padding=1, stride=2))

    weights = {"f": drawn(3, 3, 32 // groups, 64), "bias": drawn(64)}
    check(call, (2, 5, 6, 32), expected=["convolution_add_gelu"], **weights)


@pytest.mark.parametrize(("inner", "features"), [(3, 64), (8, 16)])
def test_groups_that_fill_no_tile(inner: int, features: int) -> None:
    def call(x: Tensor, f: Tensor) -> Tensor:
        return ops.conv2d(x, f, groups=2)

    result = kernels(traced(call, F32, (1, 5, 6, 2 * inner), {"f": drawn(3, 3, inner, features)}))
    assert "convolution_float32" in result


@pytest.mark.parametrize("channels", [8, 6])
def test_each_channel_by_itself(channels: int) -> None:
    def call(x: Tensor, f: Tensor, bias: Tensor) -> Tensor:
        stride = (1, 2)
        result = ops.conv2d(x, f, bias=bias, groups=channels, padding=2, stride=stride)
        return ops.relu(result * bias)

    weights = {"f": drawn(5, 5, 1, channels), "bias": drawn(channels)}
    sizes = ((1, 9, 13, channels), (3, 9, 13, channels))
    check(call, *sizes, expected=["depthwise_add_mul_relu"], **weights)


def test_each_channel_of_a_line() -> None:
    def call(x: Tensor, f: Tensor, bias: Tensor) -> Tensor:
        return ops.relu(ops.conv1d(x, f, bias=bias, groups=8, padding=1, dilation=2))

    weights = {"f": drawn(3, 1, 8), "bias": drawn(8)}
    check(call, (2, 11, 8), expected=["depthwise_add_relu"], **weights)


@pytest.mark.parametrize("spatial", [1, 3])
def test_lines_and_volumes(spatial: int) -> None:
    def call(x: Tensor, f: Tensor) -> Tensor:
        convolve = {1: ops.conv1d, 3: ops.conv3d}[spatial]
        return ops.relu(convolve(x, f, padding=1))

    taps, sizes = (3, 2, 3)[:spatial], (6, 4, 5)[:spatial]
    weights = {"f": drawn(*taps, 4, 8)}
    check(call, (2, *sizes, 4), expected=["convolution_add_relu"], **weights)


SPREAD: list[tuple[tuple[int, int], dict[str, Any]]] = [
    ((2, 2), {"stride": 2}),
    ((4, 4), {"stride": 2, "padding": 1}),
    ((3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    ((3, 2), {"stride": (1, 3)}),
    ((5, 3), {"stride": (2, 1), "padding": (4, 2, 0, 1)}),
]


@pytest.mark.parametrize(("taps", "window"), SPREAD)
def test_transposed(taps: tuple[int, int], window: dict[str, Any]) -> None:
    """Images of any size: each phase is a product of its own."""

    def call(x: Tensor, f: Tensor, bias: Tensor) -> Tensor:
        y = ops.conv_transpose2d(x, f, bias=bias, **window)
        return ops.relu(y * bias)

    weights = {"f": drawn(*taps, 8, 12), "bias": drawn(12)}
    sizes, shape = ((2, 5, 7, 8), (1, 3, 4, 8)), ("n", "h", "w", 8)
    check(call, *sizes, expected=["convolution_add_mul_relu"], shape=shape, **weights)


def test_transposed_lines() -> None:
    def call(x: Tensor, f: Tensor) -> Tensor:
        return ops.conv_transpose1d(x, f, 3, padding=(2, 1), output_padding=1)

    weights = {"f": drawn(8, 12, 20)}
    check(call, (2, 9, 12), expected=["convolution_add"], dtype=F16, **weights)


def test_images_of_any_size() -> None:
    def call(x: Tensor, f: Tensor, g: Tensor) -> Tensor:
        return ops.conv2d(ops.conv2d(x, f, padding=1), g, groups=8, stride=2)

    weights = {"f": drawn(3, 3, 4, 8), "g": drawn(2, 2, 1, 8)}
    sizes = ((2, 5, 7, 4), (1, 12, 3, 4))
    check(
        call,
        *sizes,
        expected=["convolution_add", "depthwise_add"],
        shape=("n", "h", "w", 4),
        **weights,
    )


def test_images_without_pixels() -> None:
    """All that a window sees is padding."""

    def call(x: Tensor, f: Tensor, bias: Tensor) -> Tensor:
        return ops.conv2d(x, f, bias=bias, padding=2)

    weights = {"f": drawn(3, 3, 8, 12), "bias": drawn(12)}
    shape = ("n", "h", "w", 8)
    check(call, (1, 0, 4, 8), (2, 0, 0, 8), expected=["convolution_add"], shape=shape, **weights)


def test_float16() -> None:
    def call(x: Tensor, f: Tensor, g: Tensor, bias: Tensor) -> Tensor:
        return ops.conv2d(ops.conv2d(x, f, padding=1, bias=bias), g, groups=8, bias=bias)

    weights = {"f": drawn(3, 3, 16, 8), "g": drawn(2, 2, 1, 8), "bias": drawn(8)}
    expected = ["convolution_add", "depthwise_add"]
    check(call, (2, 5, 6, 16), expected=expected, dtype=F16, **weights)


def test_what_is_left_to_the_kernel_of_any_convolution() -> None:
    def wide(x: Tensor, f: Tensor) -> Tensor:
        return ops.conv2d(x, f, padding=6)

    def doubled(x: Tensor, f: Tensor) -> Tensor:
        return ops.conv2d(x, f)

    result = kernels(traced(wide, F32, (1, 9, 9, 4), {"f": drawn(13, 13, 4, 8)}))
    assert "convolution_float32" in result
    result = kernels(traced(doubled, F64, (1, 9, 9, 4), {"f": drawn(3, 3, 4, 8)}))
    assert "convolution_float64" in result
