"""Rules for the products of a decode step: several of one input, or a gate, as one launch."""

from __future__ import annotations

from typing import TypedDict

from maxtool.compiler.kernels.cuda.gpu_requests import GatedLinear, Linears
from maxtool.compiler.kernels.forms import Step
from maxtool.compiler.lowering.cuda.products import float32_of, product_options, rows_of
from maxtool.compiler.lowering.function import Expr, FunctionLowering, Rule
from maxtool.dtype import DType
from maxtool.graph import Node


def _linears(function: FunctionLowering, node: Node) -> None:
    shapes = [function.flat_sizes(value.shape) for value in node.outputs]
    options, operands = _call(function, node)
    biases, residual = node.attributes["biases"], node.attributes["residual"]
    request = Linears(**options, biases=biases, residual=residual)
    results = function.kernel_several(request, operands, shapes)
    for value, expr in zip(node.outputs, results, strict=True):
        function.set_flat(value, expr)


def _gated_linear(function: FunctionLowering, node: Node) -> None:
    result = node.outputs[0]
    options, operands = _call(function, node)
    steps = (Step(node.attributes["activation"], (0,)), Step("mul", (2, 1)))
    dtype, biases = function.result_type(result), node.attributes["biases"]
    request = GatedLinear(**options, biases=biases, steps=steps, out=dtype.value)
    sizes = function.flat_sizes(result.shape)
    function.set_result(result, function.kernel(request, operands, sizes, dtype))


class FewOptions(TypedDict):
    """Options that the products of few rows have; see :class:`FewProducts`."""

    weight_dtype: str
    aligned: bool
    rounds: bool


def _call(function: FunctionLowering, node: Node) -> tuple[FewOptions, list[Expr]]:
    """Return what the kernel is built for, and its operands: rows, weights and what is added."""
    x, weight = node.inputs[:2]
    options: FewOptions = {
        "weight_dtype": weight.dtype.value,
        "aligned": product_options(weight.dtype, *weight.shape)["aligned"],
        "rounds": weight.dtype is not DType.float32 and not function.is_narrow(x, weight.dtype),
    }
    # A bias has one dimension, and x, so also a residual, more than two.
    others = [
        function.get(each) if each.rank == 2 else float32_of(function, each)
        for each in node.inputs[1:]
    ]
    rows = function.get_flat(x) if options["rounds"] else rows_of(function, x, weight.dtype)
    return options, [rows, *others]


FEW_PRODUCTS: dict[str, Rule] = {"gated_linear": _gated_linear, "linears": _linears}
