"""Rules for mixtures of experts on GPUs."""

from __future__ import annotations

from maxtool.compiler.fusion.product_fusions import is_one_token
from maxtool.compiler.kernels.cuda.gpu_requests import ExpertLinear, ExpertOrder
from maxtool.compiler.lowering.cuda.cuda_product_rules import product_of, rows_of
from maxtool.compiler.lowering.function_lowering import Expr, FunctionLowering, Rule
from maxtool.dtype import DType
from maxtool.graph import Node, Tensor


def _expert_linear(function: FunctionLowering, node: Node) -> None:
    x, weight, chosen = node.inputs
    result = node.outputs[0]
    experts, n, k = weight.shape
    count = function.count(chosen.shape)
    choices = function.reshaped(function.any(chosen), [count])
    few = is_one_token(chosen.shape)
    request = ExpertLinear(**vars(product_of(weight.dtype, n, k)), few=few)
    order = [] if few else _order(function, chosen, choices, int(experts))
    operands = [rows_of(function, x, weight.dtype), function.get(weight), choices, *order]
    sizes = function.flat_sizes(result.shape)
    function.set_flat(result, function.kernel(request, operands, sizes))


def _order(function: FunctionLowering, chosen: Tensor, choices: Expr, experts: int) -> list[Expr]:
    """The choices sorted by expert, once for all products of them."""

    def make() -> list[Expr]:
        shapes = [[experts + 1], choices.ty.shape]
        request = ExpertOrder(experts=experts)
        return function.kernel_several(request, [choices], shapes, DType.int64)

    order: list[Expr] = function.once(("order", id(chosen), experts), make)
    return order


EXPERTS: dict[str, Rule] = {"expert_linear": _expert_linear}
