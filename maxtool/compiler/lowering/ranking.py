"""Rules for the largest elements, and the order of all."""

from __future__ import annotations

from tvm import te

from maxtool.compiler.lowering.function import FunctionLowering, Rule
from maxtool.compiler.lowering.rowwise import row_sizes, rows, set_rows
from maxtool.dtype import DType
from maxtool.graph import Node


def _top_k(function: FunctionLowering, node: Node) -> None:
    """First the places, then what is there."""
    (x,), (values, places) = node.inputs, node.outputs
    axes, count = node.attributes["axes"], node.attributes["k"]
    operand = rows(function, x, axes)
    sizes = [row_sizes(function, x, axes)[0], count]
    options = {"dtype": x.dtype.value, "count": count}
    found = function.kernel("top_rows", options, [operand], sizes, DType.int64)
    taken = function.compute(
        lambda x, at: te.compute(at.shape, lambda i, j: x(i, at(i, j)), name="taken"),
        operand,
        found,
        name="taken",
    )
    set_rows(function, places, axes, found)
    set_rows(function, values, axes, taken)


def _argsort(function: FunctionLowering, node: Node) -> None:
    (x,), (result,), axes = node.inputs, node.outputs, node.attributes["axes"]
    options = {"dtype": x.dtype.value, "ascending": node.attributes["ascending"]}
    sizes = row_sizes(function, x, axes)
    operand = rows(function, x, axes)
    found = function.kernel("sorted_places", options, [operand], sizes, DType.int64)
    set_rows(function, result, axes, found)


RANKING: dict[str, Rule] = {"argsort": _argsort, "top_k": _top_k}
