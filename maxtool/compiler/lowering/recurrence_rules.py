"""The rules for operations over time that keep a state of fixed size."""

from __future__ import annotations

from collections.abc import Callable

from maxtool.compiler.kernels.requests import (
    CausalConvolution,
    LinearAttention,
    Request,
    SelectiveScan,
)
from maxtool.compiler.lowering.function_lowering import FunctionLowering, Rule
from maxtool.dtype import DType
from maxtool.graph import Node


def _updating(request_of: Callable[[Node], Request]) -> Rule:
    """Return the rule of a kernel that updates a state, its first operand, and writes a result."""

    def rule(function: FunctionLowering, node: Node) -> None:
        state, *rest = node.inputs
        after, result = node.outputs
        operands = [function.to_overwrite(state), *map(function.get, rest)]
        sizes = function.sizes(result.shape)
        written, value = function.kernel_updating(request_of(node), operands, 1, [sizes])
        function.set_whole(after, written)
        function.set_whole(result, value)

    return rule


def _causal_conv1d(node: Node) -> CausalConvolution:
    taps, channels = node.inputs[2].shape.static()
    return CausalConvolution(taps=taps, channels=channels, slots=len(node.inputs) > 4)


def _linear_attention(node: Node) -> LinearAttention:
    state, _, key = node.inputs[:3]
    heads, key_dim, value_dim = state.shape[1:].static()
    floats = [tensor for tensor in node.inputs if tensor.dtype is DType.float32]
    return LinearAttention(
        key_heads=int(key.shape[2]),
        heads=heads,
        key_dim=key_dim,
        value_dim=value_dim,
        delta=len(floats) > 5,
        by_channel=floats[4].rank == key.rank,
        slots=len(node.inputs) - len(floats) > 1,
    )


def _selective_scan(node: Node) -> SelectiveScan:
    state_dim, channels = node.inputs[0].shape[1:].static()
    return SelectiveScan(state_dim=state_dim, channels=channels, slots=len(node.inputs) > 7)


RECURRENCES: dict[str, Rule] = {
    "causal_conv1d": _updating(_causal_conv1d),
    "linear_attention": _updating(_linear_attention),
    "selective_scan": _updating(_selective_scan),
}
