"""The rules for mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable

from tvm import te, tirx

from maxtool.compiler.kernels.cpu.cpu_requests import PackedExpertLinear
from maxtool.compiler.kernels.requests import WeightedSum
from maxtool.compiler.lowering.function_lowering import Expr, FunctionLowering, Rule
from maxtool.compiler.lowering.tensor_expressions import as_float32
from maxtool.graph import Node


def _expert_linear(function: FunctionLowering, node: Node) -> None:
    x, weight, chosen = node.inputs
    result = node.outputs[0]
    count = function.count(chosen.shape)
    choices = function.reshaped(function.any(chosen), [count])
    operands = [function.get_flat(x), function.get(weight), choices]
    storage = function.storage.get(id(weight))
    if storage is not None and storage.block is not None:
        request = PackedExpertLinear(weight_dtype=storage.dtype.value)
        value = function.kernel(request, operands, function.flat_sizes(result.shape))
    else:
        per_row = int(chosen.shape[-1]) if x.rank == chosen.rank else 1
        value = function.compute(_general(per_row), *operands, name="expert_linear")
    function.set_flat(result, value)


def _general(per_row: int) -> Callable[..., Expr]:
    """The same for weights that are not packed."""

    def compute(x: Expr, weight: Expr, chosen: Expr) -> Expr:
        experts, out, width = weight.shape
        k = te.reduce_axis((0, width), name="k")
        zero, last = tirx.const(0, "int64"), tirx.Cast("int64", experts - 1)

        def element(i: Expr, j: Expr) -> Expr:
            expert = tirx.max(tirx.min(chosen(i), last), zero)
            return te.sum(x(i // per_row, k) * as_float32(weight(expert, j, k)), axis=k)

        return te.compute((chosen.shape[0], out), element, name="expert_linear")

    return compute


def _weighted_sum(function: FunctionLowering, node: Node) -> None:
    x, shares = node.inputs
    result = node.outputs[0]
    rows, used = function.flat_sizes(shares.shape)
    operands = [
        function.reshaped(function.any(x), [rows, used, *function.sizes(x.shape[-1:])]),
        function.get_flat(shares),
    ]
    sizes = function.flat_sizes(result.shape)
    value = function.kernel(WeightedSum(), operands, sizes)
    function.set_flat(result, value)


EXPERTS: dict[str, Rule] = {"expert_linear": _expert_linear, "weighted_sum": _weighted_sum}
