"""Rules for products of matrices, and of experts: with packed weights, and with any others."""

from __future__ import annotations

from tvm import tirx

from maxtool.compiler.fusion.linear_fusions import has_kernel
from maxtool.compiler.kernels.cpu.cpu_requests import (
    PackColumns,
    PackedExpertLinear,
    PackedLinear,
    QuantizedExpertLinear,
    QuantizedLinear,
)
from maxtool.compiler.kernels.requests import WeightedSum
from maxtool.compiler.lowering import tensor_expressions as te
from maxtool.compiler.lowering.cast_rules import converted
from maxtool.compiler.lowering.function_lowering import Expr, FunctionLowering, Rule
from maxtool.compiler.storage_types import stored
from maxtool.dtype import DType
from maxtool.graph import Node, Shape, Tensor
from maxtool.graph.ops.neural import WEIGHT_DTYPES


def _linear(function: FunctionLowering, node: Node) -> None:
    x, weight, *bias = node.inputs
    result = node.outputs[0]
    wide = x.dtype if x.dtype is DType.float64 else DType.float32
    storage = function.storage.get(id(weight))
    sizes = function.flat_sizes(result.shape)
    rows = converted(function, function.get_flat(x), x.dtype, wide)
    added = [converted(function, function.get(row), row.dtype, wide) for row in bias]
    at_rest = storage is not None and storage.block is not None
    if storage is not None and storage.encoding is not None:
        quantized = QuantizedLinear(encoding=storage.encoding.name, bias=bool(bias))
        value = function.kernel(quantized, [rows, function.get(weight), *added], sizes)
    elif at_rest or (wide is DType.float32 and weight.dtype in WEIGHT_DTYPES):
        terms = terms_of(function, x, weight)
        packed = packed_operand(function, weight, terms)
        request = PackedLinear(weight_dtype=weight.dtype.value, bias=bool(bias), terms=terms)
        value = function.kernel(request, [rows, packed, *added], sizes)
    else:
        compute = te.linear(weight.dtype, wide)
        value = function.compute(compute, rows, function.get(weight), *added, name="linear")
    function.set_flat(result, converted(function, value, wide, x.dtype))


def terms_of(function: FunctionLowering, x: Tensor, matrix: Tensor) -> int:
    """Return how many terms lie side by side in a packed matrix that multiplies ``x``.

    Products of pairs round ``x``. What allows for it knows weights that are stored so; a matrix
    that is packed at run time is in pairs only if ``x`` is of its own type, which loses nothing.
    """
    storage = function.storage.get(id(matrix))
    if storage is not None and storage.is_packed:
        return storage.terms
    return function.target.terms(matrix.dtype) if x.dtype is matrix.dtype else 1


def packed_operand(function: FunctionLowering, weight: Tensor, terms: int) -> Expr:
    """The matrix of a ``linear``, packed; in this function if it is not so in the weights file."""
    storage = function.storage.get(id(weight))
    at_rest = storage is not None and storage.is_packed
    return function.get(weight) if at_rest else _packed(function, weight, terms)


def _matmul(function: FunctionLowering, node: Node) -> None:
    x, y = node.inputs
    result = node.outputs[0]
    if not has_kernel(x, y):
        operands = [function.get(operand) for operand in node.inputs]
        value = function.compute(te.matmul(x.dtype), *operands, name="matmul")
        function.set_whole(result, value)
        return
    batched, wide = y.rank > 2, DType.float32
    sizes = matrices if batched else FunctionLowering.flat_sizes
    rows = function.reshaped(function.any(x), sizes(function, x.shape))
    terms = terms_of(function, x, y)
    columns = _packed(function, y, terms, transposed=node.attributes.get("transposed", False))
    request = PackedLinear(weight_dtype=y.dtype.value, batched=batched, terms=terms)
    operands = [converted(function, rows, x.dtype, wide), columns]
    product = function.kernel(request, operands, sizes(function, result.shape))
    value = converted(function, product, wide, x.dtype)
    function.set_whole(result, function.reshaped(value, function.sizes(result.shape)))


def matrices(function: FunctionLowering, shape: Shape) -> list[Expr]:
    """A shape as [batch, rows, columns]."""
    return [function.count(shape[:-2]), *function.sizes(shape[-2:])]


def _packed(
    function: FunctionLowering, value: Tensor, terms: int, *, transposed: bool = True
) -> Expr:
    """Matrices, known at run time only, in blocks of columns: with a batch if there is one."""
    block = function.target.packing or 1
    batch, first, second = sizes = matrices(function, value.shape)
    k, n = (second, first) if transposed else (first, second)
    operand = function.reshaped(function.any(value), sizes)
    shape = [tirx.floordiv(n + (block - 1), block), tirx.floordiv(k + (terms - 1), terms), block]
    if terms > 1:
        shape.append(terms)
    request = PackColumns(dtype=stored(value.dtype), transposed=transposed, terms=terms)
    packed = function.kernel(request, [operand], [batch, *shape], value.dtype)
    return packed if value.rank > 2 else function.reshaped(packed, shape)


def _expert_linear(function: FunctionLowering, node: Node) -> None:
    x, weight, chosen = node.inputs
    result = node.outputs[0]
    count = function.count(chosen.shape)
    choices = function.reshaped(function.any(chosen), [count])
    operands = [function.get_flat(x), function.get(weight), choices]
    storage = function.storage.get(id(weight))
    if storage is not None and storage.encoding is not None:
        quantized = QuantizedExpertLinear(encoding=storage.encoding.name)
        value = function.kernel(quantized, operands, function.flat_sizes(result.shape))
    elif storage is not None and storage.block is not None:
        request = PackedExpertLinear(weight_dtype=storage.dtype.value, terms=storage.terms)
        value = function.kernel(request, operands, function.flat_sizes(result.shape))
    else:
        per_row = int(chosen.shape[-1]) if x.rank == chosen.rank else 1
        value = function.compute(te.expert_linear(per_row), *operands, name="expert_linear")
    function.set_flat(result, value)


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


PRODUCTS: dict[str, Rule] = {
    "expert_linear": _expert_linear,
    "linear": _linear,
    "matmul": _matmul,
    "weighted_sum": _weighted_sum,
}
