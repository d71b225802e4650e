"""The rule for drawing tokens."""

from __future__ import annotations

from tvm import relax

from maxtool.compiler.kernels.requests import Sample
from maxtool.compiler.lowering.function_lowering import FunctionLowering, Rule
from maxtool.graph import BufferType, Node


def _sample(function: FunctionLowering, node: Node) -> None:
    """The kernel writes what was seen in place, and the tokens to memory of their own."""
    seen, *rest = node.inputs
    after, token = node.outputs
    owned = isinstance(seen.type, BufferType)
    written = function.get(seen) if owned else function.copied(seen)
    operands = [written, *map(function.get, rest)]
    kernel = function.module.kernel(Sample(), function.target)
    types = [written.ty, function.type(token.type)]
    both = function.emit(relax.op.call_tir_inplace(kernel, operands, [0, -1], types))
    for index, value in enumerate((after, token)):
        function.set_whole(value, function.emit(relax.TupleGetItem(both, index)))


SAMPLING: dict[str, Rule] = {"sample": _sample}
