"""Rules for convolutions and pooling."""

from __future__ import annotations

from maxtool.compiler.kernels.kernel_options import Window
from maxtool.compiler.kernels.requests import Convolution, Pool
from maxtool.compiler.lowering.function_lowering import FunctionLowering, Rule, kernel_rule
from maxtool.graph import Node


def _convolution(function: FunctionLowering, node: Node) -> None:
    """One dimension is an image of one row."""
    x, weight, bias = node.inputs
    (result,) = node.outputs
    line = [] if x.rank == 4 else [1]
    batch, *image = function.sizes(x.shape)
    _, *outputs = function.sizes(result.shape)
    operands = [
        function.reshaped(function.any(x), [batch, *line, *image]),
        function.reshaped(function.get(weight), [*line, *function.sizes(weight.shape)]),
        function.get(bias),
    ]
    request = Convolution(
        dtype=x.dtype.value,
        window=_window(node),
        channels=int(x.shape[-1]),
        features=int(weight.shape[-1]),
        groups=node.attributes["groups"],
    )
    value = function.kernel(request, operands, [batch, *line, *outputs], x.dtype)
    function.set_whole(result, function.reshaped(value, function.sizes(result.shape)))


def _pool(node: Node) -> Pool:
    (x,) = node.inputs
    return Pool(
        op=node.op,
        dtype=x.dtype.value,
        window=_window(node),
        channels=int(x.shape[-1]),
        count_padding=node.attributes["count_boundary"],
    )


def _window(node: Node) -> Window:
    attributes = node.attributes
    padding = attributes["padding"]
    size = attributes.get("kernel") or tuple(int(dim) for dim in node.inputs[1].shape[:-2])
    parts = [size, attributes["stride"], attributes["dilation"], padding[::2], padding[1::2]]
    fill = (1, 1, 1, 0, 0)  # what a dimension of one row has
    pairs = [
        part if len(part) == 2 else (first, *part) for part, first in zip(parts, fill, strict=True)
    ]
    return Window(*pairs)


IMAGES: dict[str, Rule] = {
    **dict.fromkeys(("conv1d", "conv2d"), _convolution),
    **dict.fromkeys(("max_pool2d", "avg_pool2d"), kernel_rule(_pool)),
}
