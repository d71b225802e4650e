"""Rules for convolutions of bytes: by floats that hold their sums exactly, where nothing is faster.

That is right for any window, any groups and any target.
"""

from __future__ import annotations

from math import prod

from tvm import te, tirx

from maxtool.compiler.image_geometry import window_of
from maxtool.compiler.kernels.kernel_options import Window
from maxtool.compiler.kernels.requests import Convolution
from maxtool.compiler.lowering.function_lowering import Expr, FunctionLowering, Rule
from maxtool.compiler.lowering.tensor_expressions import Compute
from maxtool.dtype import DType
from maxtool.graph import Node

# Terms of which float32 adds up the products exactly: each is of at most 9 bits times 8.
EXACT_TERMS = (1 << 24) // (255 * 128)


def _by_floats(function: FunctionLowering, node: Node) -> None:
    weight = node.inputs[1]
    window = window_of(node, weight.shape[:-2].static())
    integer_sums(function, node, function.get(weight), window)


def integer_sums(function: FunctionLowering, node: Node, filter_: Expr, window: Window) -> None:
    """Convolve with a filter ``[window..., channels / groups, features]``."""
    x, _, bias = node.inputs
    (result,) = node.outputs
    groups, channels = node.attributes["groups"], int(x.shape[-1])
    exact = prod(window.size) * (channels // groups) <= EXACT_TERMS
    wide = DType.float32 if exact else DType.float64
    request = Convolution(
        dtype=wide.value,
        window=window,
        channels=channels,
        features=int(result.shape[-1]),
        groups=groups,
    )
    centred = function.compute(_less(node.attributes["zero"], wide), function.get(x), name="centre")
    filters = function.compute(_less(0, wide), filter_, name="widen")
    nothing = function.compute(_nothing(wide), function.get(bias), name="nothing")
    sizes = function.sizes(result.shape)
    sums = function.kernel(request, [centred, filters, nothing], sizes, wide)
    value = function.compute(_with_bias, sums, function.get(bias), name="biased")
    function.set_whole(result, value)


def _less(zero: int, wide: DType) -> Compute:
    """Bytes less a zero point, as floats."""

    def compute(x: Expr) -> Expr:
        def element(*index: Expr) -> Expr:
            return (x(*index).astype("int32") - tirx.const(zero, "int32")).astype(wide.value)

        return te.compute(x.shape, element, name="centred")

    return compute


def _nothing(wide: DType) -> Compute:
    return lambda bias: te.compute(bias.shape, lambda _: tirx.const(0, wide.value), name="nothing")


def _with_bias(sums: Expr, bias: Expr) -> Expr:
    """Whole numbers that are floats, and a bias, in int32."""
    return te.compute(sums.shape, lambda *i: sums(*i).astype("int32") + bias(i[-1]), name="biased")


INTEGER_CONVOLUTIONS: dict[str, Rule] = {"integer_convolution": _by_floats}
