"""The operations: functions that trace when an operand is symbolic, and run when none is."""

from maxtool.graph.graph import Graph
from maxtool.graph.ops.elementwise import (
    abs,  # noqa: A004 - the operation's name
    add,
    cast,
    div,
    exp,
    gelu,
    log,
    maximum,
    minimum,
    mul,
    negative,
    relu,
    rsqrt,
    sigmoid,
    silu,
    sqrt,
    sub,
    tanh,
)
from maxtool.graph.ops.layout import permute, reshape, slice_tensor, transpose
from maxtool.graph.ops.neural import (
    attention,
    cache_write_key,
    cache_write_value,
    embedding,
    linear,
    matmul,
    rms_norm,
    rope,
)
from maxtool.graph.ops.table import OPS, Op, apply
from maxtool.graph.tensor import Tensor


def call(graph: Graph, *args: Tensor, prefix: str = "") -> list[Tensor]:
    """Call a subgraph from the graph being traced.

    Args:
        graph: What :meth:`maxtool.nn.Module.build_subgraph` returned.
        args: One operand for each input.
        prefix: Whose weights it reads: put before the name of each placeholder weight.

    Raises:
        LookupError: If no graph is being traced.
        ValueError: If the operands do not fit, or the subgraph has weights and there is no prefix.
    """
    current = Graph.current()
    if current is None:
        raise LookupError("a subgraph is called while a graph is traced")
    return list(current.call(graph, *args, prefix=prefix))


__all__ = [
    "OPS",
    "Op",
    "abs",
    "add",
    "apply",
    "attention",
    "cache_write_key",
    "cache_write_value",
    "call",
    "cast",
    "div",
    "embedding",
    "exp",
    "gelu",
    "linear",
    "log",
    "matmul",
    "maximum",
    "minimum",
    "mul",
    "negative",
    "permute",
    "relu",
    "reshape",
    "rms_norm",
    "rope",
    "rsqrt",
    "sigmoid",
    "silu",
    "slice_tensor",
    "sqrt",
    "sub",
    "tanh",
    "transpose",
]
