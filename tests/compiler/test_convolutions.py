"""Convolutions with kernels of their own: what they compute, and what is fused with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from maxtool.compiler.placement import Placement
from maxtool.compiler.rewriting import rewrite
from maxtool.compiler.targets import Targets
from maxtool.dtype import DType
from maxtool.graph import Graph, Node, Tensor, TensorType, Weight, executor, ops
from maxtool.parity.evaluator import evaluate

Array = np.ndarray[Any, Any]
F32 = DType.float32
rng = np.random.default_rng(0)


def compared(call: Callable[..., Any], *shapes: tuple[int | str, ...], **weights: Array) -> None:
    """Compare compiled code, for two sizes of a batch, with the float64 definition."""

    def traced(*inputs: Tensor) -> list[Tensor]:
        own = {name: Weight(name, F32, value.shape) for name, value in weights.items()}
        return [call(*inputs, **own)]

    graph = Graph("g", traced, [TensorType(F32, shape) for shape in shapes])
    run = executor.find_executor().compile(graph, weights)
    for batch in (1, 3):
        sizes = [[batch if dim == "n" else int(dim) for dim in shape] for shape in shapes]
        inputs = [rng.standard_normal(size).astype("f4") for size in sizes]
        (exact,) = evaluate(graph, inputs, weights)
        got = run(*map(Tensor, inputs))[0].to_numpy()
        np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)


def drawn(*shape: int) -> Array:
    return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]))).astype("f4")


# Rows and columns, channels, features, the filter's rows and columns, and the window.
CASES: list[tuple[tuple[int, int], int, int, tuple[int, int], dict[str, Any]]] = [
    ((7, 9), 16, 64, (3, 3), {"padding": 1}),
    ((15, 14), 3, 40, (7, 7), {"padding": 3, "stride": 2}),
    ((6, 6), 24, 33, (1, 1), {}),
    ((9, 8), 8, 70, (1, 1), {"stride": 2}),
    ((11, 10), 5, 7, (3, 2), {"dilation": (1, 2), "padding": (1, 0, 2, 1)}),
    ((5, 40), 20, 100, (2, 5), {"padding": (0, 1, 4, 0), "stride": (2, 1)}),
]


@pytest.mark.parametrize(("size", "channels", "features", "taps", "window"), CASES)
def test_direct(
    size: tuple[int, int],
    channels: int,
    features: int,
    taps: tuple[int, int],
    window: dict[str, Any],
) -> None:
    weights = {"f": drawn(*taps, channels, features), "bias": drawn(features)}

    def call(x: Tensor, f: Tensor, bias: Tensor) -> Tensor:
        return ops.relu(ops.conv2d(x, f, bias=bias, **window))

    compared(call, ("n", *size, channels), **weights)


@pytest.mark.parametrize("channels", [8, 37, 64])
@pytest.mark.parametrize(
    ("taps", "window"),
    [
        ((3, 3), {"padding": 1}),
        ((5, 5), {"padding": 2, "stride": 2}),
        ((3, 3), {"padding": (0, 1, 0, 1), "stride": 2}),
        ((2, 3), {"dilation": (2, 4), "padding": (1, 1, 3, 4)}),
    ],
)
def test_depthwise(channels: int, taps: tuple[int, int], window: dict[str, Any]) -> None:
    weights = {"f": drawn(*taps, 1, channels)}

    def call(x: Tensor, f: Tensor) -> Tensor:
        return ops.silu(ops.conv2d(x, f, groups=channels, **window))

    compared(call, ("n", 9, 22, channels), **weights)


def test_a_line() -> None:
    weights = {"f": drawn(3, 8, 20), "g": drawn(4, 1, 20)}

    def call(x: Tensor, f: Tensor, g: Tensor) -> Tensor:
        return ops.conv1d(ops.gelu(ops.conv1d(x, f, 2, padding=1)), g, groups=20)

    compared(call, ("n", 30, 8), **weights)


def test_filters_of_every_origin() -> None:
    """Filters as a weight in PyTorch's order, as a constant, and as an input."""
    weights = {"f": drawn(12, 8, 3, 3)}
    fixed = drawn(3, 3, 12, 10)

    def call(x: Tensor, given: Tensor, f: Tensor) -> Tensor:
        first = ops.conv2d(x, ops.permute(f, (2, 3, 1, 0)), padding=1)
        second = ops.conv2d(first, fixed, padding=1)
        return ops.conv2d(ops.relu(second), ops.permute(given, (2, 3, 1, 0)))

    compared(call, ("n", 6, 7, 8), (4, 10, 1, 2), **weights)


def test_what_is_done_to_a_result() -> None:
    """Residuals, rows for all pixels, results that are read twice, and two convolutions added."""
    weights = {"f": drawn(3, 3, 8, 24), "g": drawn(1, 1, 24, 24), "scale": drawn(24)}

    def call(x: Tensor, f: Tensor, g: Tensor, scale: Tensor) -> Tensor:
        first = ops.relu(ops.conv2d(x, f, padding=1) * scale + 0.5)
        second = ops.conv2d(first, g) + first
        both = ops.conv2d(first, g) + ops.conv2d(second, g)
        return ops.sigmoid(both) * both

    compared(call, ("n", 5, 6, 8), **weights)


def test_a_result_of_the_graph_itself() -> None:
    weights = {"f": drawn(3, 3, 8, 24)}

    def call(x: Tensor, f: Tensor) -> Tensor:
        return ops.conv2d(x, f)

    compared(call, ("n", 5, 6, 8), **weights)


def test_channels_scaled_by_their_means() -> None:
    weights = {"f": drawn(3, 3, 8, 24), "g": drawn(1, 1, 24, 24), "h": drawn(1, 1, 24, 40)}

    def call(x: Tensor, f: Tensor, g: Tensor, h: Tensor) -> Tensor:
        y = ops.hard_swish(ops.conv2d(x, f, padding=1))
        gate = ops.sigmoid(ops.conv2d(ops.mean(y, (1, 2)), g))
        narrow = ops.conv2d(gate * y, h, stride=2) + 1.0
        return narrow * narrow

    compared(call, ("n", 5, 6, 8), **weights)


@pytest.mark.parametrize("sizes", [(5,), (3, 4)])
@pytest.mark.parametrize("shape", [(), (8,)])
def test_channels_scaled_by_what_is_no_image(sizes: tuple[int, ...], shape: tuple[int]) -> None:
    """Exported GELUs end in a product with a number, and the next layer may be a convolution."""
    weights = {"f": drawn(*[1] * len(sizes), 8, 24), "g": drawn(*shape)}

    def call(x: Tensor, f: Tensor, g: Tensor) -> Tensor:
        convolve = ops.conv1d if len(sizes) == 1 else ops.conv2d
        return convolve(x * g, f)

    compared(call, ("n", *sizes, 8), **weights)


@pytest.mark.parametrize("sizes", [(5,), (3, 4), (2, 3, 4)])
def test_means_of_images(sizes: tuple[int, ...]) -> None:
    def call(x: Tensor) -> Tensor:
        once = ops.mean(x, tuple(range(1, x.rank - 1)))
        again = x
        for axis in range(1, x.rank - 1):
            again = ops.mean(again, axis)
        return once - 2.0 * again

    compared(call, ("n", *sizes, 21))


def test_a_product_with_its_own_sigmoid() -> None:
    weights = {"f": drawn(1, 1, 8, 24)}

    def call(x: Tensor, f: Tensor) -> Tensor:
        y = ops.conv2d(x, f)
        return ops.sigmoid(y) * y

    kinds = [TensorType(F32, shape) for shape in (["n", 2, 2, 8], [1, 1, 8, 24])]
    graph = Graph("g", lambda x, f: [call(x, f)], kinds)
    placement = Placement.of([graph], Targets())
    assert "silu" in {node.op for node in rewrite(graph, placement).nodes if isinstance(node, Node)}
    compared(call, ("n", 5, 6, 8), **weights)
