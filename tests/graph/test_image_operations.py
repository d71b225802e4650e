"""Operations on images beside ONNX's own reference implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, executor, ops
from maxtool.parity.evaluator import evaluate

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(0)
F32 = DType.float32


def expected(op: str, *operands: Array | None, opset: int = 22, **attributes: Any) -> list[Array]:
    """The results of an operator of ONNX."""
    names = ["" if operand is None else f"x{i}" for i, operand in enumerate(operands)]
    outputs = ["y0", "y1"] if op == "MaxPool" else ["y0"]
    given = {name: x for name, x in zip(names, operands, strict=True) if x is not None}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in given.items()
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    node = helper.make_node(op, names, outputs, **attributes)
    graph = helper.make_graph([node], "g", inputs, results)
    model = helper.make_model(graph, opset_imports=[onnx.OperatorSetIdProto(version=opset)])
    return [np.asarray(result) for result in ReferenceEvaluator(model).run(None, given)]


def first(x: Array) -> Array:
    """Channels first."""
    return np.moveaxis(x, -1, 1)


def last(x: Array) -> Array:
    """Channels last."""
    return np.moveaxis(x, 1, -1)


def both_ways(call: Any, *operands: Array) -> list[Array]:
    """The result of compiled code for any batch, after comparing it with that in float64."""
    types = [TensorType(F32, ["n", *x.shape[1:]]) for x in operands]
    graph = Graph("g", lambda *x: [call(*x)], types)
    (exact,) = evaluate(graph, list(operands), {})
    run = executor.find_executor().compile(graph, {})
    (got,) = run(*map(Tensor, operands))
    np.testing.assert_allclose(got.to_numpy(), exact, rtol=1e-4, atol=1e-4)
    return [got.to_numpy(), np.asarray(exact)]


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolution(spatial: int, groups: int) -> None:
    sizes, kernel = (5, 4, 3)[:spatial], (3, 2, 2)[:spatial]
    options: dict[str, Any] = {
        "stride": (2, 1, 3),
        "dilation": (1, 2, 1),
        "output_padding": (1, 0, 2),
    }
    chosen = {name: each[:spatial] for name, each in options.items()}
    padding = ((1, 0), (0, 2), (1, 1))[:spatial]
    x = rng.standard_normal((2, *sizes, 4)).astype("f4")
    f = rng.standard_normal((*kernel, 4 // groups, 6)).astype("f4")
    bias = rng.standard_normal(6).astype("f4")
    flat = [one for pair in padding for one in pair]
    call = getattr(ops, f"conv_transpose{spatial}d")
    got, exact = both_ways(
        lambda x: call(x, f, padding=flat, groups=groups, bias=bias, **chosen), x
    )
    # ONNX's reference is wrong about groups: one at a time.
    parts = zip(*(np.split(each, groups, -1) for each in (x, f, bias)), strict=True)
    wanted = [
        expected(
            "ConvTranspose",
            first(part),
            np.moveaxis(filters, (-2, -1), (0, 1)),
            added,
            strides=chosen["stride"],
            dilations=chosen["dilation"],
            output_padding=chosen["output_padding"],
            pads=[pair[0] for pair in padding] + [pair[1] for pair in padding],
        )[0]
        for part, filters, added in parts
    ]
    joined = np.concatenate(wanted, 1)
    np.testing.assert_allclose(first(exact), joined, rtol=1e-5, atol=1e-5)
    assert got.shape == exact.shape


def test_transposed_convolution_of_any_width() -> None:
    f = rng.standard_normal((2, 3, 4, 5)).astype("f4")

    def call(x: Tensor) -> Tensor:
        return ops.conv_transpose2d(x, f, 2, padding=(1, 0, -1, 1))

    graph = Graph("g", lambda x: [call(x)], [TensorType(F32, [1, "h", "w", 4])])
    run = executor.find_executor().compile(graph, {})
    for h, w in ((3, 4), (1, 2)):
        x = rng.standard_normal((1, h, w, 4)).astype("f4")
        (exact,) = evaluate(graph, [x], {})
        np.testing.assert_allclose(run(Tensor(x))[0].to_numpy(), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spatial", [1, 3])
def test_convolution(spatial: int) -> None:
    sizes, kernel, stride = (7, 6, 5)[:spatial], (3, 2, 3)[:spatial], (2, 1, 2)[:spatial]
    x = rng.standard_normal((2, *sizes, 4)).astype("f4")
    f = rng.standard_normal((*kernel, 2, 6)).astype("f4")
    call = getattr(ops, f"conv{spatial}d")
    options = {"stride": stride, "padding": [1, 0, 2, 1, 0, 1][: 2 * spatial], "groups": 2}
    _, exact = both_ways(lambda x: call(x, f, **options), x)
    pads = [1, 2, 0, 0, 1, 1] if spatial == 3 else [1, 0]
    filters = np.moveaxis(f, (-1, -2), (0, 1))
    (wanted,) = expected("Conv", first(x), filters, strides=stride, pads=pads, group=2)
    np.testing.assert_allclose(first(exact), wanted, rtol=1e-5, atol=1e-5)


POOLS: list[dict[str, Any]] = [
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 2, "stride": 2, "ceil_mode": True},
    {"kernel_size": 2, "dilation": 2, "stride": 1, "padding": 1},
]


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("options", POOLS)
def test_pools(spatial: int, options: dict[str, Any]) -> None:
    x = rng.standard_normal((2, *(7, 6, 5)[:spatial], 3)).astype("f4")
    x[0, 2, ..., 1] = 0  # of equal elements the first
    onnx_options: dict[str, Any] = {
        "kernel_shape": [options["kernel_size"]] * spatial,
        "strides": [options["stride"]] * spatial,
        "dilations": [options.get("dilation", 1)] * spatial,
        "pads": [options.get("padding", 0)] * 2 * spatial,
        "ceil_mode": int(options.get("ceil_mode", False)),
    }

    def compare(name: str, op: str, own: dict[str, Any], **attributes: Any) -> None:
        call = getattr(ops, name.format(spatial))
        _, exact = both_ways(lambda x: call(x, **options, **own), x)
        wanted = expected(op, first(x), **onnx_options, **attributes)[0]
        np.testing.assert_allclose(first(exact), wanted, rtol=1e-5, atol=1e-6)

    compare("max_pool{}d", "MaxPool", {})
    compare("avg_pool{}d", "AveragePool", {"count_boundary": False})
    compare("avg_pool{}d", "AveragePool", {}, count_include_pad=1)
    if not options.get("ceil_mode"):  # there ONNX's scales a sum as if its window were whole
        compare("lp_pool", "LpPool", {"p": 3}, p=3)


def test_where_the_largest_are() -> None:
    x = rng.standard_normal((2, 7, 6, 3)).astype("f4")
    x[0, 2, :, 1] = 9
    x[1, 3, 3, 2] = np.nan
    got, exact = both_ways(lambda x: ops.max_pool_indices(x, 3, 2, padding=1), x)
    assert got.dtype == np.int64
    flat = x.reshape(2, -1, 3)
    largest = ops.max_pool2d(x, 3, 2, padding=1).to_numpy()
    for image, channel in np.ndindex(2, 3):
        taken = flat[image, exact[image, ..., channel].astype(int), channel]
        np.testing.assert_array_equal(taken, largest[image, ..., channel])
    assert exact[0, 1, 1, 1] == 2 * 6 + 1  # row 2, the first column of the window


RESIZED: list[dict[str, Any]] = [
    {"mode": "nearest", "coordinates": "asymmetric", "rounding": "floor"},
    {"mode": "nearest", "rounding": "ceil", "coordinates": "align_corners"},
    {"mode": "nearest", "rounding": "round_prefer_ceil", "coordinates": "asymmetric"},
    {"mode": "linear"},
    {"mode": "linear", "coordinates": "pytorch_half_pixel", "antialias": True},
    {"mode": "linear", "coordinates": "align_corners"},
    {"mode": "cubic", "exclude_outside": True, "cubic_coefficient": -0.5},
    {"mode": "cubic", "antialias": True},
    {"mode": "cubic", "coordinates": "half_pixel_symmetric"},
    {"mode": "linear", "coordinates": "tf_crop_and_resize", "extrapolation": 10.0},
]


@pytest.mark.parametrize("options", RESIZED)
@pytest.mark.parametrize("scales", [(0.6, 0.3), (1.7, 2.0), (0.45, 3.5)])
def test_resizing(options: dict[str, Any], scales: tuple[float, float]) -> None:
    if options.get("coordinates") == "pytorch_half_pixel":
        scales = scales[0], max(scales[1], 0.5)  # of one element the reference is not the standard
    x = rng.standard_normal((2, 7, 6, 3)).astype("f4")
    sizes = [int(scale * size) for scale, size in zip(scales, (7, 6), strict=True)]
    crops = options.get("coordinates") == "tf_crop_and_resize"
    own: dict[str, Any] = {"regions": [(0.4, 1.2), (-0.3, 0.6)]} if crops else {}
    roi = np.array([0, 0, 0.4, -0.3, 1, 1, 1.2, 0.6], "f4") if crops else None
    precise = [float(np.float32(scale)) for scale in scales]
    _, exact = both_ways(
        lambda x: ops.resize(x, sizes, (1, 2), scales=precise, **options, **own), x
    )
    (wanted,) = expected(
        "Resize",
        first(x),
        roi,
        np.array([1, 1, *scales], "f4"),
        mode=options["mode"],
        coordinate_transformation_mode=options.get("coordinates", "half_pixel"),
        nearest_mode=options.get("rounding", "round_prefer_floor"),
        cubic_coeff_a=options.get("cubic_coefficient", -0.75),
        antialias=int(options.get("antialias", False)),
        exclude_outside=int(options.get("exclude_outside", False)),
        extrapolation_value=options.get("extrapolation", 0.0),
    )
    np.testing.assert_allclose(first(exact), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
def test_one_element_of_pytorch_half_pixel_is_the_first(mode: str) -> None:
    """Begin where ONNX's text says, and onnxruntime: its reference evaluator begins elsewhere."""
    x = rng.standard_normal((2, 7, 6, 3)).astype("f4")
    resized = ops.resize(
        Tensor(x), [1, 1], (1, 2), scales=[0.2, 0.3], mode=mode, coordinates="pytorch_half_pixel"
    )
    np.testing.assert_allclose(resized.to_numpy(), x[:, :1, :1], rtol=1e-6)


OPEN = [one for one in RESIZED if "antialias" not in one and "extrapolation" not in one]


@pytest.mark.parametrize("options", OPEN)
def test_resizing_of_symbolic_sizes_is_that_of_known_ones(options: dict[str, Any]) -> None:
    def call(x: Tensor) -> list[Tensor]:
        height, width = x.shape[1:3]
        by_scale = ops.resize(x, [height * 2, width], [1, 2], scales=[2.0, 1.0], **options)
        return [by_scale, ops.resize(x, [height * 3 // 2, width * 4], [1, 2], **options)]

    graph = Graph("g", call, [TensorType(DType.float32, ["n", "h", "w", 3])])
    for sizes in ((1, 5), (6, 2), (7, 6)):
        x = rng.standard_normal((2, *sizes, 3)).astype("f4")
        for one, other in zip(evaluate(graph, [x], {}), call(Tensor(x)), strict=True):
            np.testing.assert_allclose(one, other.to_numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_resizing_that_keeps_proportions(policy: str) -> None:
    x = rng.standard_normal((1, 4, 6, 2)).astype("f4")
    got = ops.resize(x, (7, 8), (1, 2), "linear", keep_aspect=policy).to_numpy()
    sizes = np.array([7, 8])
    (wanted,) = expected(
        "Resize",
        first(x),
        None,
        None,
        sizes,
        mode="linear",
        axes=[2, 3],
        keep_aspect_ratio_policy=policy,
    )
    np.testing.assert_allclose(first(got), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_grid_sampling(mode: str, padding: str, align_corners: bool) -> None:
    x = rng.standard_normal((2, 5, 4, 3)).astype("f4")
    grid = rng.uniform(-1.4, 1.4, (2, 6, 3, 2)).astype("f4")
    options: dict[str, Any] = {"mode": mode, "padding": padding, "align_corners": align_corners}
    _, exact = both_ways(lambda x, grid: ops.grid_sample(x, grid, **options), x, grid)
    if (mode, padding) == ("cubic", "border"):
        # onnx's reference moves the place to the border, and not the pixels around it.
        x, grid, padding = *_with_border(x, grid, align_corners), "zeros"
    (wanted,) = expected(
        "GridSample",
        first(x),
        grid,
        mode=mode,
        padding_mode=padding,
        align_corners=int(align_corners),
    )
    np.testing.assert_allclose(first(exact), wanted, rtol=1e-3, atol=1e-4)


def _with_border(
    x: np.ndarray, grid: np.ndarray, align_corners: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Images with their outer pixels repeated all around, and the same places in them."""
    more = 8
    padded = np.pad(x, [(0, 0), (more, more), (more, more), (0, 0)], mode="edge")
    before, after = (np.array(one.shape[2:0:-1], "f4") - align_corners for one in (x, padded))
    return padded, (grid * before / after).astype("f4")


def test_grid_sampling_of_volumes() -> None:
    x = rng.standard_normal((1, 3, 4, 5, 2)).astype("f4")
    grid = rng.uniform(-1.2, 1.2, (1, 2, 3, 2, 3)).astype("f4")
    got = ops.grid_sample(x, grid).to_numpy()
    (wanted,) = expected("GridSample", first(x), grid, mode="linear")
    np.testing.assert_allclose(first(got), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode: str) -> None:
    x = rng.standard_normal((2, 3, 4, 12)).astype("f4")
    got = ops.depth_to_space(x, 2, channels_first=mode == "CRD").to_numpy()
    (wanted,) = expected("DepthToSpace", first(x), blocksize=2, mode=mode)
    np.testing.assert_array_equal(first(got), wanted)


def test_space_to_depth() -> None:
    x = rng.standard_normal((2, 4, 6, 3)).astype("f4")
    got = ops.space_to_depth(x, 2).to_numpy()
    (wanted,) = expected("SpaceToDepth", first(x), blocksize=2)
    np.testing.assert_array_equal(first(got), wanted)
    np.testing.assert_array_equal(ops.depth_to_space(got, 2).to_numpy(), x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ops.resize(x, (3,), (1,), "area"), "'area' is none of nearest, linear, cubic"),
        (lambda x: ops.resize(x, (0,), (1,)), "sizes above 0"),
        (lambda x: ops.resize(x, (2, 2), (1, 1)), "different axes"),
        (lambda x: ops.grid_sample(x, x), "a number for each size"),
        (lambda x: ops.grid_sample(x, x[..., :2], padding="wrap"), "padding is one of zeros"),
        (lambda x: ops.depth_to_space(x, 2), "blocks of 2 x 2"),
        (lambda x: ops.space_to_depth(x, 4), "blocks of 4"),
        (lambda x: ops.lp_pool(x, 2, p=0), "at least 1"),
        (lambda x: ops.max_pool_indices(x, 0), "rows and columns"),
        (
            lambda x: ops.conv_transpose2d(x, np.ones((1, 1, 3, 2), "f4"), padding=9),
            "cannot be -12",
        ),
    ],
)
def test_what_does_not_fit(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(Tensor(np.zeros((2, 6, 5, 3), "f4")))
