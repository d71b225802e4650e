"""Convolutions with kernels of their own: what they compute, and what is fused with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.compiler.filter_storage import (
    FilterForm,
    GroupedFilterForm,
    PhasedFilterForm,
    WinogradFilterForm,
)
from maxtool.compiler.lowering_plan import LoweringPlan
from maxtool.compiler.placement import Placement
from maxtool.compiler.rewriting import rewrite
from maxtool.compiler.targets import Targets
from maxtool.dtype import DType
from maxtool.graph import Graph, Node, Tensor, TensorType, Weight, executor, ops
from maxtool.parity.evaluator import evaluate

from .kernels.harness import HOST

Array = np.ndarray[Any, Any]
F32 = DType.float32
rng = np.random.default_rng(0)


def compared(call: Callable[..., Any], *shapes: tuple[int | str, ...], **weights: Array) -> None:
    """Compare compiled code, for two sizes of a batch, with the float64 definition."""

    def outputs(*inputs: Tensor) -> list[Tensor]:
        own = {name: Weight(name, F32, value.shape) for name, value in weights.items()}
        return [call(*inputs, **own)]

    graph = Graph("g", outputs, [TensorType(F32, shape) for shape in shapes])
    run = executor.find_executor().compile(graph, weights)
    for batch in (1, 3):
        sizes = [[batch if dim == "n" else int(dim) for dim in shape] for shape in shapes]
        inputs = [rng.standard_normal(size).astype("f4") for size in sizes]
        (exact,) = evaluate(graph, inputs, weights)
        got = run(*map(Tensor, inputs))[0].to_numpy()
        np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)


def compared_sizes(
    call: Callable[..., Any], sizes: Sequence[tuple[int, ...]], **weights: Array
) -> None:
    """Compare compiled code for images of any size with the float64 definition."""
    (rank,) = {len(size) for size in sizes}
    named = ["h", "w"][: rank - 2]
    if all(size[1:-1] == (1,) * (rank - 2) for size in sizes):
        named = [1] * (rank - 2)
    shape = ["n", *named, sizes[0][-1]]
    graph = traced(call, shape, **weights)
    nodes = rewrite(graph, Placement.of([graph], Targets())).nodes
    assert not any(str(getattr(node, "op", "")).startswith("conv") for node in nodes)
    run = executor.find_executor().compile(graph, weights)
    for size in sizes:
        x = rng.standard_normal(size).astype("f4")
        (exact,) = evaluate(graph, [x], weights)
        got = run(Tensor(x))[0].to_numpy()
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


def forms(graph: Graph) -> dict[str, FilterForm | None]:
    """Forms in which the weights of a graph are stored."""
    return {name: each.form for name, each in LoweringPlan([graph], HOST).storage.items()}


def traced(call: Callable[..., Tensor], x: list[int | str], **weights: Array) -> Graph:
    own = {name: Weight(name, F32, value.shape) for name, value in weights.items()}
    return Graph("g", lambda x: [call(x, **own)], [TensorType(F32, x)])


def test_by_transforms() -> None:
    """Transforms with a residual, an activation of many steps, and a row for all pixels."""
    weights = {"f": drawn(3, 3, 32, 40), "bias": drawn(40), "g": drawn(40, 40, 3, 3)}

    def call(x: Tensor, f: Tensor, bias: Tensor, g: Tensor) -> Tensor:
        first = ops.silu(ops.conv2d(x, f, bias=bias, padding=1))
        second = ops.conv2d(first, ops.permute(g, (2, 3, 1, 0)), padding=1) * bias
        return ops.relu(second + first)

    found = forms(traced(call, ["n", 18, 17, 32], **weights))
    assert isinstance(found["f"], WinogradFilterForm)
    assert isinstance(found["g"], WinogradFilterForm)
    compared(call, ("n", 18, 17, 32), **weights)


def test_a_filter_is_stored_as_all_convolutions_read_it() -> None:
    """A large image and a small one: only the former would take the transformed filter."""
    weights = {"f": drawn(3, 3, 32, 32)}

    def call(x: Tensor, f: Tensor) -> Tensor:
        small = ops.conv2d(ops.max_pool2d(x, 4, 4), f, padding=1)
        return ops.mean(ops.conv2d(x, f, padding=1), (1, 2)) + ops.mean(small, (1, 2))

    def large(x: Tensor, f: Tensor) -> Tensor:
        return ops.conv2d(x, f, padding=1)

    assert isinstance(forms(traced(large, ["n", 12, 12, 32], **weights))["f"], WinogradFilterForm)
    assert type(forms(traced(call, ["n", 12, 12, 32], **weights))["f"]) is FilterForm
    compared(call, ("n", 12, 12, 32), **weights)


def test_convolutions_that_are_not_transformed() -> None:
    """Strides, dilation, other windows, few channels, and images too small to pay."""
    for size, channels, taps, window in (
        (32, 32, 3, {"stride": 2}),
        (32, 32, 3, {"dilation": 2}),
        (32, 32, 5, {"padding": 2}),
        (32, 3, 3, {"padding": 1}),
        (3, 32, 3, {"padding": 1}),
    ):
        weights = {"f": drawn(taps, taps, channels, 32)}
        graph = traced(
            lambda x, f, given=window: ops.conv2d(x, f, **given),
            ["n", size, size, channels],
            **weights,
        )
        assert type(forms(graph)["f"]) is FilterForm


def test_a_transformed_filter_is_had_back() -> None:
    weights = {"f": drawn(3, 3, 32, 32)}
    graph = traced(lambda x, f: ops.conv2d(x, f, padding=1), ["n", 16, 16, 32], **weights)
    run = executor.find_executor().compile(graph, weights)
    given = weights["f"].copy()
    weights["f"][:] = 0
    np.testing.assert_array_equal(run.weight("f").data, given)


@pytest.mark.peers
def test_errors_beside_those_of_onnxruntime() -> None:
    """Errors of several layers are no larger than a few times its own."""
    onnx, onnxruntime = map(pytest.importorskip, ("onnx", "onnxruntime"))
    filters = [drawn(3, 3, 64, 64) * 1.4 for _ in range(6)]
    weights = {f"f{i}": each for i, each in enumerate(filters)}
    nodes, values = [], []
    for i, each in enumerate(filters):
        values.append(onnx.numpy_helper.from_array(each.transpose(3, 2, 0, 1).copy(), f"f{i}"))
        nodes.append(onnx.helper.make_node("Conv", [f"x{i}", f"f{i}"], [f"y{i}"], pads=[1] * 4))
        nodes.append(onnx.helper.make_node("Relu", [f"y{i}"], [f"x{i + 1}"]))
    kinds = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 64, 28, 28])
        for name in ("x0", f"x{len(filters)}")
    ]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "g", kinds[:1], kinds[1:], values),
        opset_imports=[onnx.helper.make_opsetid("", 17)],
        ir_version=8,
    )
    x = rng.standard_normal((1, 28, 28, 64)).astype("f4")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    theirs = session.run(None, {"x0": x.transpose(0, 3, 1, 2).copy()})[0].transpose(0, 2, 3, 1)

    def call(x: Tensor, **own: Tensor) -> Tensor:
        for each in own.values():
            x = ops.relu(ops.conv2d(x, each, padding=1))
        return x

    graph = traced(call, [1, 28, 28, 64], **weights)
    assert all(isinstance(each, WinogradFilterForm) for each in forms(graph).values())
    ours = executor.find_executor().compile(graph, weights)(Tensor(x))[0].to_numpy()
    (exact,) = evaluate(graph, [x], weights)
    size = np.linalg.norm(exact)
    errors = [float(np.linalg.norm(each - exact) / size) for each in (ours, theirs)]
    assert errors[0] < min(6 * errors[1], 5e-6), errors


@pytest.mark.sampled
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


# Groups, and channels and features of each; with many features they have blocks of their own.
GROUPS = [(2, 12, 70), (8, 4, 4), (9, 1, 2), (3, 5, 7), (4, 40, 1), (12, 3, 20)]


@pytest.mark.sampled
@pytest.mark.parametrize(("groups", "inner", "outer"), GROUPS)
@pytest.mark.parametrize(
    ("taps", "window"),
    [
        ((3, 3), {"padding": 1}),
        ((1, 1), {}),
        ((2, 3), {"dilation": (2, 1), "padding": (1, 1, 0, 2), "stride": (1, 2)}),
    ],
)
def test_groups(
    groups: int, inner: int, outer: int, taps: tuple[int, int], window: dict[str, Any]
) -> None:
    weights = {"f": drawn(*taps, inner, groups * outer), "bias": drawn(groups * outer)}

    def call(x: Tensor, f: Tensor, bias: Tensor) -> Tensor:
        return ops.gelu(ops.conv2d(x, f, bias=bias, groups=groups, **window))

    assert isinstance(
        forms(traced(call, ["n", 7, 9, groups * inner], **weights))["f"], GroupedFilterForm
    )
    compared(call, ("n", 7, 9, groups * inner), **weights)


@given(
    st.sampled_from([1, 2, 3, 6]),
    st.sampled_from([1, 2]),
    st.integers(1, 5),
    st.integers(1, 20),
    st.sampled_from([8, 24]),
)
def test_filters_of_groups_are_had_back(
    groups: int, together: int, inner: int, outer: int, block: int
) -> None:
    given, order = groups * together, (3, 0, 1, 2)
    form = GroupedFilterForm(order, block, given, groups)
    values = drawn(2, 3, inner, given * outer)
    stored = form.store(values)
    assert stored.shape == form.shape(values.shape)
    np.testing.assert_array_equal(form.restore(stored, values.shape), values)


# Rows and columns of an image, of the filter, and the strides and padding of a transposed one.
SPREAD: list[tuple[tuple[int, int], tuple[int, int], dict[str, Any]]] = [
    ((5, 6), (2, 2), {"stride": 2}),
    ((5, 6), (4, 4), {"stride": 2, "padding": 1}),
    ((4, 7), (3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    ((6, 5), (3, 3), {"padding": 1}),
    ((3, 4), (2, 3), {"stride": (3, 5)}),
    ((3, 4), (5, 3), {"stride": (2, 1), "padding": (4, 2, 0, 1)}),
    ((1, 1), (7, 2), {"stride": (3, 2), "padding": (5, 1, 1, 0)}),
]


@pytest.mark.parametrize("features", [3, 40])
@pytest.mark.parametrize(("size", "taps", "window"), SPREAD)
def test_transposed(
    size: tuple[int, int], taps: tuple[int, int], window: dict[str, Any], features: int
) -> None:
    weights = {"f": drawn(*taps, 12, features), "bias": drawn(features)}

    def call(x: Tensor, f: Tensor, bias: Tensor) -> Tensor:
        y = ops.conv_transpose2d(x, f, bias=bias, **window)
        return ops.silu(y * bias) + y

    graph = traced(call, ["n", *size, 12], **weights)
    assert isinstance(forms(graph)["f"], PhasedFilterForm)
    compared(call, ("n", *size, 12), **weights)


@given(st.tuples(*[st.integers(1, 4)] * 2), st.tuples(*[st.integers(1, 5)] * 2))
def test_filters_of_phases_are_had_back(stride: tuple[int, int], taps: tuple[int, int]) -> None:
    form = PhasedFilterForm((3, 0, 1, 2), 8, stride)
    values = drawn(*taps, 3, 10)
    stored = form.store(values)
    assert stored.shape == form.shape(values.shape)
    np.testing.assert_array_equal(form.restore(stored, values.shape), values)


@st.composite
def spread(draw: st.DrawFn) -> tuple[int, int, int, tuple[int, int], int]:
    """Pixels of a line, places of a filter, a stride, padding and output padding that fit."""
    size, taps, stride = (draw(st.integers(1, most)) for most in (9, 9, 5))
    more = draw(st.integers(0, stride - 1))
    before, after = (draw(st.integers(0, taps - 1)) for _ in range(2))
    if (size - 1) * stride + taps + more - before - after < 1:
        before = after = 0
    return size, taps, stride, (before, after), more


@pytest.mark.slow
@given(spread())
@settings(max_examples=25, deadline=None)
def test_transposed_lines(sizes: tuple[int, int, int, tuple[int, int], int]) -> None:
    size, taps, stride, around, more = sizes
    weights = {"f": drawn(taps, 3, 20)}

    def call(x: Tensor, f: Tensor) -> Tensor:
        window = {"padding": around, "output_padding": more}
        return ops.relu(ops.conv_transpose1d(x, f, stride, **window))

    compared(call, ("n", size, 3), **weights)


@pytest.mark.parametrize(
    ("taps", "window"),
    [
        ((3, 3, 3), {"padding": 1}),
        ((2, 4, 4), {"stride": (2, 4, 4)}),
        ((3, 1, 2), {"stride": (2, 1, 1), "dilation": (2, 1, 3), "padding": (3, 1, 0, 0, 1, 2)}),
    ],
)
def test_volumes(taps: tuple[int, int, int], window: dict[str, Any]) -> None:
    weights = {"f": drawn(*taps, 5, 20), "bias": drawn(20)}

    def call(x: Tensor, f: Tensor, bias: Tensor) -> Tensor:
        y = ops.conv3d(x, f, bias=bias, **window)
        return ops.relu(y * bias + y)

    graph = traced(call, ["n", 6, 8, 9, 5], **weights)
    form = forms(graph)["f"]
    assert form is not None
    values = weights["f"]
    np.testing.assert_array_equal(form.restore(form.store(values), values.shape), values)
    compared(call, ("n", 6, 8, 9, 5), **weights)


# Sizes of images that are narrower than a tile, as wide, and wider.
ANY_SIZE = [(1, 3), (2, 14), (5, 17), (4, 9), (3, 40)]
OPEN: list[tuple[tuple[int, int], int, dict[str, Any]]] = [
    ((3, 3), 1, {"padding": 1}),
    ((1, 1), 1, {}),
    ((1, 1), 1, {"stride": 2}),
    ((1, 2), 1, {"stride": (1, 2), "dilation": (1, 2)}),
    ((5, 2), 1, {"padding": (3, 1, 0, 2), "stride": (2, 1)}),
    ((3, 3), 4, {"padding": 1, "stride": 2}),
    ((1, 1), 3, {}),
    ((3, 3), 12, {"padding": 1}),
    ((1, 3), 12, {"stride": (2, 2)}),
    ((5, 7), 12, {"padding": (2, 4, 6, 5), "dilation": (1, 2), "stride": (1, 3)}),
]


@pytest.mark.parametrize("features", [12, 84])
@pytest.mark.parametrize(("taps", "groups", "window"), OPEN)
def test_images_of_any_size(
    taps: tuple[int, int], groups: int, window: dict[str, Any], features: int
) -> None:
    weights = {"f": drawn(*taps, 12 // groups, features), "bias": drawn(features)}

    def call(x: Tensor, f: Tensor, bias: Tensor) -> Tensor:
        y = ops.conv2d(x, f, bias=bias, groups=groups, **window)
        return ops.silu(y * bias) + y

    sizes = [(batch, *size, 12) for batch in (1, 3) for size in ANY_SIZE]
    fits = [size for size in sizes if "padding" in window or size[2] > 3 or taps == (1, 1)]
    compared_sizes(call, fits, **weights)


@pytest.mark.parametrize(("taps", "window"), [case[1:] for case in SPREAD])
def test_transposed_images_of_any_size(taps: tuple[int, int], window: dict[str, Any]) -> None:
    weights = {"f": drawn(*taps, 12, 20), "bias": drawn(20)}

    def call(x: Tensor, f: Tensor, bias: Tensor) -> Tensor:
        return ops.relu(ops.conv_transpose2d(x, f, bias=bias, **window))

    sizes = [(batch, *size, 12) for batch in (1, 2) for size in ANY_SIZE[1:]]
    compared_sizes(call, sizes, **weights)


def test_any_number_of_single_pixels() -> None:
    """Single pixels are one line; where each has factors of its own they are not."""
    weights = {"f": drawn(1, 1, 24, 40), "g": drawn(1, 1, 40, 24), "bias": drawn(40)}

    def call(x: Tensor, f: Tensor, g: Tensor, bias: Tensor) -> Tensor:
        y = ops.relu(ops.conv2d(x, f, bias=bias) * bias)
        return ops.conv2d(ops.sigmoid(y) * y, g) + x

    compared_sizes(call, [(batch, 1, 1, 24) for batch in (0, 1, 5, 40)], **weights)


def test_lines_of_any_length() -> None:
    weights = {"f": drawn(5, 8, 20), "g": drawn(4, 1, 20), "h": drawn(4, 20, 6)}

    def call(x: Tensor, f: Tensor, g: Tensor, h: Tensor) -> Tensor:
        y = ops.gelu(ops.conv1d(x, f, 2, padding=2))
        y = ops.conv1d(y, g, groups=20, padding=3)
        return ops.conv_transpose1d(y, h, 2, padding=1)

    compared_sizes(call, [(1, 1, 8), (2, 30, 8), (1, 1000, 8)], **weights)


def test_pixels_scaled_in_images_of_any_size() -> None:
    weights = {"f": drawn(3, 3, 8, 24), "g": drawn(1, 1, 24, 24), "h": drawn(1, 1, 24, 40)}

    def call(x: Tensor, f: Tensor, g: Tensor, h: Tensor) -> Tensor:
        y = ops.hard_swish(ops.conv2d(x, f, padding=1))
        gate = ops.sigmoid(ops.conv2d(ops.mean(y, (1, 2)), g))
        return ops.conv2d(gate * y, h)

    compared_sizes(call, [(2, 3, 2, 8), (1, 9, 14, 8)], **weights)


def test_groups_of_a_line() -> None:
    weights = {"f": drawn(5, 6, 36)}

    def call(x: Tensor, f: Tensor) -> Tensor:
        return ops.relu(ops.conv1d(x, f, groups=3, padding=2))

    compared(call, ("n", 30, 18), **weights)


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
