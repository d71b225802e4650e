"""Rules for what moves elements, and computes none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tvm import relax, tirx

from maxtool.compiler.kernels.cpu.cpu_requests import CutRows, JoinRows
from maxtool.compiler.kernels.requests import GatherRows, NonzeroPlaces, ScatterBlocks, ScatterRows
from maxtool.compiler.lowering import index_expressions as te
from maxtool.compiler.lowering.function_lowering import Expr, FunctionLowering, Rule
from maxtool.compiler.lowering.row_rules import row_sizes, rows, set_rows
from maxtool.compiler.lowering.tensor_expressions import Compute
from maxtool.compiler.storage_types import stored
from maxtool.dtype import DType
from maxtool.graph import BufferType, Dim, Node, Shape, Tensor
from maxtool.graph.ops.slicing import IndexRange

# Types of which kernels copy neighbours in vectors.
COPIED = (DType.float64, DType.float32, DType.int64, DType.int32, DType.int8, DType.uint8)


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
    """Cut as few dimensions as say the same: to tell several apart takes a division each."""
    (x,), (result,) = node.inputs, node.outputs
    runs = _runs(x.shape, node.attributes["ranges"])
    flat = function.reshaped(function.get(x), _sizes(function, (dim for dim, _ in runs)))
    if (cut := _cut(function, runs, x.dtype)) is not None:
        sizes = [function.size(runs[0][0]), tirx.IntImm("int64", cut.count)]
        value = function.kernel(cut, [flat], sizes, x.dtype)
        function.set_whole(result, function.reshaped(value, function.sizes(result.shape)))
        return
    starts = _sizes(function, (own.start for _, own in runs))
    sizes = _sizes(function, (own.size for _, own in runs))
    compute = te.slices([own.step for _, own in runs])
    value = function.compute(compute, flat, starts, sizes, name="slice")
    function.set_whole(result, function.reshaped(value, function.sizes(result.shape)))


def _cut(
    function: FunctionLowering, runs: Sequence[tuple[Dim, IndexRange]], dtype: DType
) -> CutRows | None:
    """Return the request for neighbours of each row, if a slice takes those of known sizes."""
    if len(runs) != len(("rows", "columns")) or not _has_rows(function, dtype):
        return None
    (rows, taken), (width, own) = runs
    is_whole = taken.start == 0 and taken.step == 1 and taken.size == rows
    known = all(Dim(each).is_static for each in (width, own.start, own.size)) and own.step == 1
    if not is_whole or not known or rows == 1 or own.size == 0:
        return None
    return CutRows(dtype=stored(dtype), width=int(width), first=int(own.start), count=int(own.size))


def _has_rows(function: FunctionLowering, dtype: DType) -> bool:
    """Return whether kernels copy neighbours of a type in vectors."""
    return function.target.kind == "cpu" and dtype in COPIED


def _concat(function: FunctionLowering, node: Node) -> None:
    """Join rows where what is behind the axis is known; else element by element."""
    (result,), axis = node.outputs, node.attributes["axis"]
    shapes = [x.shape[axis:] for x in node.inputs]
    rows = prod(result.shape[:axis], start=Dim(1))
    known = all(shape.is_static and 0 not in shape for shape in shapes)
    if not known or rows == 1 or not _has_rows(function, result.dtype):
        CONCAT(function, node)
        return
    widths = tuple(prod(shape.static()) for shape in shapes)
    count = function.count(result.shape[:axis])
    operands = [
        function.reshaped(function.any(x), [count, tirx.IntImm("int64", width)])
        for x, width in zip(node.inputs, widths, strict=True)
    ]
    request = JoinRows(dtype=stored(result.dtype), widths=widths)
    sizes = [count, tirx.IntImm("int64", sum(widths))]
    value = function.kernel(request, operands, sizes, result.dtype)
    function.set_whole(result, function.reshaped(value, function.sizes(result.shape)))


def _runs(shape: Shape, ranges: Sequence[IndexRange]) -> list[tuple[Dim, IndexRange]]:
    """Dimensions and what is taken of each; one that is taken whole joins the one before it."""
    runs: list[tuple[Dim, IndexRange]] = []
    for dim, taken in zip(shape, ranges, strict=True):
        is_whole = taken.start == 0 and taken.step == 1 and taken.size == dim
        if runs and is_whole and runs[-1][1].step == 1:
            before, own = runs.pop()
            runs.append((before * dim, IndexRange(own.start * dim, 1, own.size * dim)))
        else:
            runs.append((dim, taken))
    return runs


def _pad(function: FunctionLowering, node: Node) -> None:
    """Pad as few dimensions as say the same."""
    (x, filling), (result,) = node.inputs, node.outputs
    frames = _frames(x.shape, node.attributes["before"], result.shape)
    flat = function.reshaped(function.get(x), _sizes(function, (dim for dim, _, _ in frames)))
    sizes = _sizes(function, (whole for _, _, whole in frames))
    compute = te.pad([low for _, low, _ in frames])
    value = function.compute(compute, flat, function.get(filling), sizes, name="pad")
    function.set_whole(result, function.reshaped(value, function.sizes(result.shape)))


def _frames(shape: Shape, before: Sequence[int], padded: Shape) -> list[tuple[Dim, int, Dim]]:
    """Dimensions, what is before each, and padded ones; one without joins the one before it."""
    frames: list[tuple[Dim, int, Dim]] = []
    for dim, low, whole in zip(shape, before, padded, strict=True):
        is_bare = low == 0 and dim == whole
        if frames and is_bare and (frames[-1][1] == 0 or dim.is_static):
            inside, first, all_of_it = frames.pop()
            low = first * int(dim) if first else 0
            frames.append((inside * dim, low, all_of_it * dim))
        else:
            frames.append((dim, low, whole))
    return frames


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


# Elements one by one, for what is not joined by rows.
CONCAT = _sized(lambda node: te.concat(node.attributes["axis"]))


MOVING: dict[str, Rule] = {
    "broadcast_to": _broadcast_to,
    "counted": _counted,
    "concat": _concat,
    "gather": _gather,
    "gather_nd": _gather_nd,
    "nonzero": _nonzero,
    "pad": _pad,
    "range": _sized(lambda _: te.sequence),
    "rebind": _rebind,
    "reshape": _reshape,
    "scatter": _scatter,
    "scatter_add": _scatter,
    "scatter_nd": _scatter_nd,
    "shape_to_tensor": _shape_to_tensor,
    "slice": _slice,
}
