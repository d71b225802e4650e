"""Rules for what moves elements, and computes none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, tirx

from maxtool.compiler.kernels.requests import GatherRows, NonzeroPlaces, ScatterBlocks, ScatterRows
from maxtool.compiler.lowering import index_expressions as te
from maxtool.compiler.lowering.function_lowering import Expr, FunctionLowering, Rule
from maxtool.compiler.lowering.row_rules import row_sizes, rows, set_rows
from maxtool.compiler.lowering.tensor_expressions import Compute
from maxtool.compiler.storage_types import stored
from maxtool.graph import BufferType, Node, Tensor


def _own(function: FunctionLowering, value: Tensor) -> Expr:
    """A value of which a view may be taken: of a buffer it would show what is written later."""
    return function.copied(value) if isinstance(value.type, BufferType) else function.any(value)


def _sizes(function: FunctionLowering, dims: Any) -> Expr:  # noqa: ANN401 - dimensions
    return relax.ShapeExpr([tirx.IntImm("int64", 0) + function.size(dim) for dim in dims])


def _reshape(function: FunctionLowering, node: Node) -> None:
    x, result = node.inputs[0], node.outputs[0]
    same_width = x.rank and result.rank and x.shape[-1] == result.shape[-1]
    dtype = function.result_type(x)
    if dtype is not x.dtype:
        value = function.narrow(x, dtype)
        function.set_result(result, function.reshaped(value, function.flat_sizes(result.shape)))
    elif same_width and not isinstance(x.type, BufferType):
        function.set_flat(result, function.get_flat(x))
    else:
        value = function.reshaped(_own(function, x), function.sizes(result.shape))
        function.set_whole(result, value)


def _slice(function: FunctionLowering, node: Node) -> None:
    x, ranges = function.get(node.inputs[0]), node.attributes["ranges"]
    starts = _sizes(function, (each.start for each in ranges))
    sizes = _sizes(function, (each.size for each in ranges))
    compute = te.slices([each.step for each in ranges])
    value = function.compute(compute, x, starts, sizes, name="slice")
    function.set_whole(node.outputs[0], value)


def _broadcast_to(function: FunctionLowering, node: Node) -> None:
    x, result = node.inputs[0], node.outputs[0]
    same = x.shape == result.shape and isinstance(x.type, BufferType)
    value = function.copied(x) if same else function.broadcast(x, result.shape)
    function.set_whole(result, value)


def _rebind(function: FunctionLowering, node: Node) -> None:
    """The value itself, after ``match_cast`` has checked a second name for it.

    Of that name TVM knows no size; with the sizes of the value it would conclude that the claim is
    true, and leave the check out. Nothing reads the elements by it: the memory of the value is
    planned without knowing of it.
    """
    x, result = node.inputs[0], node.outputs[0]
    value = function.to_keep(x)
    unknown = relax.op.call_pure_packed(
        "vm.builtin.tuple_getitem",
        function.emit(relax.Tuple([value])),
        relax.prim_value(0),
        ty_args=[relax.TensorType(ndim=x.rank, dtype=stored(x.dtype), vdevice=function.vdevice)],
    )
    function.module.builder.match_cast(function.emit(unknown), function.type(result.type))
    function.set_whole(result, value)


def _sized(compute_of: Callable[[Node], Compute]) -> Rule:
    """Return the rule of a tensor expression of the operands and the sizes of the result."""

    def rule(function: FunctionLowering, node: Node) -> None:
        (result,) = node.outputs
        operands = [function.get(value) for value in node.inputs]
        sizes = _sizes(function, result.shape)
        value = function.compute(compute_of(node), *operands, sizes, name=node.op)
        function.set_whole(result, value)

    return rule


def _gather(function: FunctionLowering, node: Node) -> None:
    (x, indices), (result,), axis = node.inputs, node.outputs, node.attributes["axis"]
    outer, inner = (function.count(x.shape[part]) for part in (slice(axis), slice(axis + 1, None)))
    n, m = function.size(x.shape[axis]), function.count(indices.shape)
    operands = [
        function.reshaped(function.get(x), [outer, n, inner]),
        function.reshaped(function.get(indices), [m]),
    ]
    request = GatherRows(dtype=stored(x.dtype), places=indices.dtype.value)
    value = function.kernel(request, operands, [outer, m, inner], x.dtype)
    function.set_whole(result, function.reshaped(value, function.sizes(result.shape)))


def _gather_nd(function: FunctionLowering, node: Node) -> None:
    operands = [function.get(value) for value in node.inputs]
    compute = te.gather_nd(node.attributes["batch"], int(node.inputs[1].shape[-1]))
    function.set_whole(node.outputs[0], function.compute(compute, *operands, name="gather"))


def _scatter(function: FunctionLowering, node: Node) -> None:
    x, _, indices = node.inputs
    axes = (node.attributes["axis"],)
    operands = [rows(function, value, axes) for value in node.inputs]
    adds = node.op == "scatter_add"
    request = ScatterRows(dtype=x.dtype.value, places=indices.dtype.value, adds=adds)
    value = function.kernel(request, operands, row_sizes(function, x, axes), x.dtype)
    set_rows(function, node.outputs[0], axes, value)


def _scatter_nd(function: FunctionLowering, node: Node) -> None:
    x, updates, indices = node.inputs
    depth = int(indices.shape[-1])
    count = function.count(indices.shape[:-1])
    block, total = function.count(x.shape[depth:]), function.count(x.shape[:depth])
    at = function.reshaped(function.get(indices), [count, depth])
    operands = [
        function.reshaped(function.get(x), [total, block]),
        function.reshaped(function.get(updates), [count, block]),
        function.compute(te.rows_of, function.get(x), at, name="rows"),
    ]
    request = ScatterBlocks(dtype=x.dtype.value)
    value = function.kernel(request, operands, [total, block], x.dtype)
    result = node.outputs[0]
    function.set_whole(result, function.reshaped(value, function.sizes(result.shape)))


def _nonzero(function: FunctionLowering, node: Node) -> None:
    """Lower to as many rows as the last of the counts says, a size of the function from here on."""
    (counts,), (result,) = node.inputs, node.outputs
    shape, total = node.attributes["shape"], function.get(counts)
    last = function.compute(te.last, total, name="count")
    rows = function.emit(relax.op.tensor_to_shape(last))
    size = function.size(node.attributes["size"])
    function.module.builder.match_cast(rows, relax.ShapeType([size]))
    shaped = function.reshaped(total, function.sizes(shape))
    request = NonzeroPlaces(rank=shape.rank)
    value = function.kernel(request, [total, shaped], [size, shape.rank], result.dtype)
    function.set_whole(result, value)


def _counted(function: FunctionLowering, node: Node) -> None:
    """Lower to as many numbers as there are to be, a size of the function from here on."""
    (count,), (result,) = node.inputs, node.outputs
    many = function.emit(relax.op.tensor_to_shape(function.reshaped(function.get(count), [1])))
    size = function.size(node.attributes["size"])
    function.module.builder.match_cast(many, relax.ShapeType([size]))
    value = function.compute(te.numbers, _sizes(function, result.shape), name="numbers")
    function.set_whole(result, value)


def _shape_to_tensor(function: FunctionLowering, node: Node) -> None:
    sizes = _sizes(function, node.attributes["shape"])
    function.set_whole(node.outputs[0], function.compute(te.shape, sizes, name="shape"))


MOVING: dict[str, Rule] = {
    "broadcast_to": _broadcast_to,
    "counted": _counted,
    "concat": _sized(lambda node: te.concat(node.attributes["axis"])),
    "gather": _gather,
    "gather_nd": _gather_nd,
    "nonzero": _nonzero,
    "pad": _sized(lambda node: te.pad(node.attributes["before"])),
    "range": _sized(lambda _: te.sequence),
    "rebind": _rebind,
    "reshape": _reshape,
    "scatter": _scatter,
    "scatter_add": _scatter,
    "scatter_nd": _scatter_nd,
    "shape_to_tensor": _shape_to_tensor,
    "slice": _slice,
}
