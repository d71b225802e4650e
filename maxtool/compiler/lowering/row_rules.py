"""Rules for what works along some dimensions: these are brought last, and joined to rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tvm import te, tirx

from maxtool.compiler.kernels import requests
from maxtool.compiler.lowering.function_lowering import Expr, FunctionLowering, Rule
from maxtool.compiler.lowering.permute_rules import permuted
from maxtool.dtype import DType
from maxtool.graph import Node, Tensor
from maxtool.graph.ops.reduction import INDICES, REDUCTIONS


def rows(function: FunctionLowering, value: Tensor, axes: Sequence[int]) -> Expr:
    """``value`` as ``[everything else, elements along axes]``."""
    order, sizes = _axes_last(value.rank, axes), function.sizes(value.shape)
    whole = permuted(function, function.get(value), sizes, order, value.dtype)
    return function.reshaped(whole, row_sizes(function, value, axes))


def row_sizes(function: FunctionLowering, value: Tensor, axes: Sequence[int]) -> list[Expr]:
    """Return the number of rows, and the number of elements of each."""
    sizes = function.sizes(value.shape)
    unit = tirx.IntImm("int64", 1)
    along = prod((sizes[axis] for axis in axes), start=unit)
    return [prod((size for axis, size in enumerate(sizes) if axis not in axes), start=unit), along]


def set_rows(function: FunctionLowering, result: Tensor, axes: Sequence[int], value: Expr) -> None:
    """Set the expression of ``result`` by its :func:`rows`."""
    order = _axes_last(result.rank, axes)
    sizes = function.sizes(result.shape)
    moved = [sizes[axis] for axis in order]
    back = [order.index(axis) for axis in range(result.rank)]
    whole = function.reshaped(value, moved)
    function.set_whole(result, permuted(function, whole, moved, back, result.dtype))


def _axes_last(rank: int, axes: Sequence[int]) -> tuple[int, ...]:
    return (*(axis for axis in range(rank) if axis not in axes), *axes)


def _reduction(function: FunctionLowering, node: Node) -> None:
    (x,), (result,), axes = node.inputs, node.outputs, node.attributes["axes"]
    operand = rows(function, x, axes)
    count = row_sizes(function, x, axes)[:1]
    reduce = requests.IndexRows if node.op in INDICES else requests.ReduceRows
    request = reduce(op=node.op, dtype=x.dtype.value)
    value = function.kernel(request, [operand], count, result.dtype)
    function.set_whole(result, function.reshaped(value, function.sizes(result.shape)))


def _row_rule(request_of: Callable[[Node], requests.Request]) -> Rule:
    """Return the rule of an operation that is one kernel on rows, and gives rows as long."""

    def rule(function: FunctionLowering, node: Node) -> None:
        (x,), (result,), axes = node.inputs, node.outputs, node.attributes["axes"]
        operand, sizes = rows(function, x, axes), row_sizes(function, x, axes)
        value = function.kernel(request_of(node), [operand], sizes, result.dtype)
        set_rows(function, result, axes, value)

    return rule


def _argsort(node: Node) -> requests.Request:
    ascending = node.attributes["ascending"]
    return requests.SortedPlaces(dtype=node.inputs[0].dtype.value, ascending=ascending)


def _cumsum(node: Node) -> requests.Request:
    exclusive, reverse = node.attributes["exclusive"], node.attributes["reverse"]
    return requests.CumsumRows(
        dtype=node.inputs[0].dtype.value, exclusive=exclusive, reverse=reverse
    )


def _softmax(node: Node) -> requests.Request:
    return requests.SoftmaxRows(op=node.op, dtype=node.inputs[0].dtype.value)


def _top_k(function: FunctionLowering, node: Node) -> None:
    """Lower to the indices first, then to the elements there."""
    (x,), (values, positions) = node.inputs, node.outputs
    axes, count = node.attributes["axes"], node.attributes["k"]
    operand = rows(function, x, axes)
    sizes = [row_sizes(function, x, axes)[0], count]
    request = requests.TopRows(dtype=x.dtype.value, count=count)
    indices = function.kernel(request, [operand], sizes, DType.int64)
    taken = function.compute(
        lambda x, at: te.compute(at.shape, lambda i, j: x(i, at(i, j)), name="taken"),
        operand,
        indices,
        name="taken",
    )
    set_rows(function, positions, axes, indices)
    set_rows(function, values, axes, taken)


def _layer_norm(function: FunctionLowering, node: Node) -> None:
    (x, gamma, beta), (result,) = node.inputs, node.outputs
    dtype = function.result_type(result)
    request = requests.LayerNormRows(
        dtype=x.dtype.value,
        weight=gamma.dtype.value,
        eps=node.attributes["eps"],
        out=dtype.value,
    )
    operands = [function.get_flat(x), function.get(gamma), function.get(beta)]
    sizes = function.flat_sizes(x.shape)
    value = function.kernel(request, operands, sizes, dtype)
    function.set_result(result, value)


def _l2_norm(function: FunctionLowering, node: Node) -> None:
    x = node.inputs[0]
    request = requests.L2NormRows(dtype=x.dtype.value, eps=node.attributes["eps"])
    value = function.kernel(request, [function.get_flat(x)], function.flat_sizes(x.shape), x.dtype)
    function.set_flat(node.outputs[0], value)


def _group_norm(function: FunctionLowering, node: Node) -> None:
    """A row for each group of each example: they lie one after the other."""
    x, gamma, beta = node.inputs
    groups, channels = node.attributes["num_groups"], int(x.shape[1])
    request = requests.GroupNormRows(
        dtype=x.dtype.value,
        weight=gamma.dtype.value,
        eps=node.attributes["eps"],
        groups=groups,
        channels=channels,
    )
    batch, _, *rest = function.sizes(x.shape)
    unit = tirx.IntImm("int64", 1)
    sizes = [batch * unit * groups, prod(rest, start=unit) * (channels // groups)]
    operands = [function.reshaped(function.any(x), sizes), function.get(gamma), function.get(beta)]
    value = function.kernel(request, operands, sizes, x.dtype)
    function.set_whole(node.outputs[0], function.reshaped(value, function.sizes(x.shape)))


def _rms_norm(function: FunctionLowering, node: Node) -> None:
    x, weight = node.inputs
    eps, offset = node.attributes["eps"], node.attributes["weight_offset"]
    operands = [function.get_flat(x), function.get(weight)]
    sizes = function.flat_sizes(x.shape)
    if x.dtype is weight.dtype is DType.float32 and not offset:
        dtype = function.result_type(node.outputs[0])
        request = requests.RmsNorm(dim=int(weight.shape[0]), eps=eps, out=dtype.value)
        value = function.kernel(request, operands, sizes, dtype)
        function.set_result(node.outputs[0], value)
    else:
        general = requests.RmsNormRows(
            dtype=x.dtype.value,
            weight=weight.dtype.value,
            eps=eps,
            offset=offset,
            round_first=not node.attributes["multiply_before_cast"],
        )
        value = function.kernel(general, operands, sizes, x.dtype)
        function.set_flat(node.outputs[0], value)


ROWWISE: dict[str, Rule] = {
    **dict.fromkeys((*REDUCTIONS, *INDICES), _reduction),
    "argsort": _row_rule(_argsort),
    "cumsum": _row_rule(_cumsum),
    "group_norm": _group_norm,
    "l2_norm": _l2_norm,
    "layer_norm": _layer_norm,
    "logsoftmax": _row_rule(_softmax),
    "rms_norm": _rms_norm,
    "softmax": _row_rule(_softmax),
    "top_k": _top_k,
}
