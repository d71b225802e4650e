"""Rules for the products of a decode step: several of one input, or a gate, as one launch."""

from __future__ import annotations

from maxtool.compiler.kernels.cuda.gpu_requests import FewProducts, GatedLinear, Linears
from maxtool.compiler.kernels.kernel_options import ChainStep
from maxtool.compiler.lowering.cuda.cuda_product_rules import float32_of, product_of, rows_of
from maxtool.compiler.lowering.function_lowering import Expr, FunctionLowering, Rule
from maxtool.dtype import DType
from maxtool.graph import Node


def _linears(function: FunctionLowering, node: Node) -> None:
    shapes = [function.flat_sizes(value.shape) for value in node.outputs]
    products, operands = _call(function, node)
    biases, residual = node.attributes["biases"], node.attributes["residual"]
    request = Linears(**vars(products), biases=biases, residual=residual)
    results = function.kernel_several(request, operands, shapes)
    for value, expr in zip(node.outputs, results, strict=True):
        function.set_flat(value, expr)


def _gated_linear(function: FunctionLowering, node: Node) -> None:
    result = node.outputs[0]
    products, operands = _call(function, node)
    steps = (ChainStep(node.attributes["activation"], (0,)), ChainStep("mul", (2, 1)))
    dtype, biases = function.result_type(result), node.attributes["biases"]
    request = GatedLinear(**vars(products), biases=biases, steps=steps, out=dtype.value)
    sizes = function.flat_sizes(result.shape)
    function.set_result(result, function.kernel(request, operands, sizes, dtype))


def _call(function: FunctionLowering, node: Node) -> tuple[FewProducts, list[Expr]]:
    """Return what the kernel is built for, and its operands: rows, weights and what is added."""
    x, weight = node.inputs[:2]
    products = FewProducts(
        weight_dtype=weight.dtype.value,
        aligned=product_of(weight.dtype, *weight.shape).aligned,
        rounds=weight.dtype is not DType.float32 and not function.is_narrow(x, weight.dtype),
    )
    # A bias has one dimension, and x, so also a residual, more than two.
    others = [
        function.get(each) if each.rank == 2 else float32_of(function, each)
        for each in node.inputs[1:]
    ]
    rows = function.get_flat(x) if products.rounds else rows_of(function, x, weight.dtype)
    return products, [rows, *others]


FUSED_GEMV: dict[str, Rule] = {"gated_linear": _gated_linear, "linears": _linears}
