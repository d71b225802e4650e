"""Rules for products of matrices: with weights that are stored packed, and with any others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias

from tvm import tirx

from maxtool.compiler.kernels.cpu.linear import linear
from maxtool.compiler.kernels.cpu.product import product
from maxtool.compiler.lowering import expressions as te
from maxtool.compiler.lowering.function import FunctionLowering
from maxtool.compiler.rewriting import has_kernel
from maxtool.dtype import DType
from maxtool.graph import Node, Shape
from maxtool.graph.ops.neural import WEIGHT_DTYPES

Rule: TypeAlias = Callable[[FunctionLowering, Node], None]
Expr: TypeAlias = Any  # tvm ships no types


def _linear(function: FunctionLowering, node: Node) -> None:
    x, weight, *bias = node.inputs
    result = node.outputs[0]
    wide = x.dtype if x.dtype is DType.float64 else DType.float32
    place = function.storage.get(id(weight))
    sizes = function.flat_sizes(result.shape)
    rows = _converted(function, function.get_flat(x), x.dtype, wide)
    added = [_converted(function, function.get(one), one.dtype, wide) for one in bias]
    if place is not None and place.block is not None:
        packed = (None, None, place.dtype.value, function.module.target.tile, bool(bias))
        value = function.kernel(linear, packed, [rows, function.get(weight), *added], sizes)
    elif wide is DType.float32 and weight.dtype in WEIGHT_DTYPES:
        operands = [
            function.reshaped(rows, [1, *function.flat_sizes(x.shape)]),
            function.reshaped(function.get(weight), [1, *function.sizes(weight.shape)]),
        ]
        arguments = (weight.dtype.value, function.module.target.tile, True, bool(bias))
        made = function.kernel(product, arguments, [*operands, *added], [1, *sizes])
        value = function.reshaped(made, sizes)
    else:
        compute = te.linear(weight.dtype, wide)
        value = function.compute(compute, rows, function.get(weight), *added, name="linear")
    function.set_flat(result, _converted(function, value, wide, x.dtype))


def _matmul(function: FunctionLowering, node: Node) -> None:
    x, y = node.inputs
    result = node.outputs[0]
    batch = None if y.rank == 2 else y.shape[:-2]
    if not has_kernel(x, y):
        operands = [function.get(operand) for operand in node.inputs]
        value = function.compute(te.matmul(x.dtype), *operands, name="matmul")
        function.set_whole(result, value)
        return
    wide = _converted(function, function.any(x), x.dtype, DType.float32)
    operands = [
        function.reshaped(wide, _batched(function, x.shape, batch)),
        function.reshaped(function.any(y), _batched(function, y.shape, batch)),
    ]
    transposed = node.attributes.get("transposed", False)  # as rewriting has it
    arguments = (y.dtype.value, function.module.target.tile, transposed)
    made = function.kernel(product, arguments, operands, _batched(function, result.shape, batch))
    value = _converted(function, made, DType.float32, x.dtype)
    function.set_whole(result, function.reshaped(value, function.sizes(result.shape)))


def _batched(function: FunctionLowering, shape: Shape, batch: Shape | None) -> Sequence[Expr]:
    """A shape as [batch, rows, columns]: without a batch, one matrix of all rows."""
    if batch is None:
        return [1, *function.flat_sizes(shape)]
    one = tirx.IntImm("int64", 1)
    return [prod(function.sizes(batch), start=one), *function.sizes(shape[-2:])]


def _converted(function: FunctionLowering, value: Expr, source: DType, dtype: DType) -> Expr:
    if source is dtype:
        return value
    return function.compute(te.cast(source, dtype), value, name="cast")


PRODUCTS: dict[str, Rule] = {"linear": _linear, "matmul": _matmul}
