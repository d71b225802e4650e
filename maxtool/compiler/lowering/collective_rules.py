"""The rules for operations between devices: functions that whoever runs the module registers."""

from __future__ import annotations

from tvm import relax

from maxtool.compiler.lowering.function_lowering import FunctionLowering, Rule
from maxtool.graph import Node
from maxtool.runtime.loader.collectives import ALL_GATHER, ALL_REDUCE


def _collective(name: str) -> Rule:
    def rule(function: FunctionLowering, node: Node) -> None:
        (x,), (result,) = node.inputs, node.outputs
        call = relax.op.call_dps_packed(name, [function.get(x)], function.type(result.type))
        function.set_whole(result, function.emit(call))

    return rule


COLLECTIVE: dict[str, Rule] = {
    "all_gather": _collective(ALL_GATHER),
    "all_reduce": _collective(ALL_REDUCE),
}
