"""Rules for the largest elements, and the order of all."""

from __future__ import annotations

from tvm import te

from maxtool.compiler.kernels.requests import SortedPlaces, TopRows
from maxtool.compiler.lowering.function_lowering import FunctionLowering, Rule
from maxtool.compiler.lowering.row_rules import row_sizes, rows, set_rows
from maxtool.dtype import DType
from maxtool.graph import Node


def _top_k(function: FunctionLowering, node: Node) -> None:
    """Lower to the indices first, then to the elements there."""
    (x,), (values, positions) = node.inputs, node.outputs
    axes, count = node.attributes["axes"], node.attributes["k"]
    operand = rows(function, x, axes)
    sizes = [row_sizes(function, x, axes)[0], count]
    request = TopRows(dtype=x.dtype.value, count=count)
    indices = function.kernel(request, [operand], sizes, DType.int64)
    taken = function.compute(
        lambda x, at: te.compute(at.shape, lambda i, j: x(i, at(i, j)), name="taken"),
        operand,
        indices,
        name="taken",
    )
    set_rows(function, positions, axes, indices)
    set_rows(function, values, axes, taken)


def _argsort(function: FunctionLowering, node: Node) -> None:
    (x,), (result,), axes = node.inputs, node.outputs, node.attributes["axes"]
    request = SortedPlaces(dtype=x.dtype.value, ascending=node.attributes["ascending"])
    sizes = row_sizes(function, x, axes)
    indices = function.kernel(request, [rows(function, x, axes)], sizes, DType.int64)
    set_rows(function, result, axes, indices)


RANKING: dict[str, Rule] = {"argsort": _argsort, "top_k": _top_k}
