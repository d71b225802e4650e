"""The operations: functions that trace when an operand is symbolic, and run when none is."""

from maxtool.graph.ops.attention import scaled_dot_product_attention
from maxtool.graph.ops.convolution import avg_pool2d, conv1d, conv2d, max_pool2d
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
from maxtool.graph.ops.flow import (
    call,
    constant,
    print,  # noqa: A004 - the operation's name
    transfer_to,
)
from maxtool.graph.ops.layout import permute, reshape, slice_tensor, transpose
from maxtool.graph.ops.neural import (
    attention,
    cache_write_key,
    cache_write_value,
    embedding,
    linear,
    matmul,
    rope,
)
from maxtool.graph.ops.normalization import group_norm, layer_norm, logsoftmax, rms_norm, softmax
from maxtool.graph.ops.ranking import top_k
from maxtool.graph.ops.reduction import (
    all,  # noqa: A004 - the operation's name
    any,  # noqa: A004
    argmax,
    argmin,
    cumsum,
    max,  # noqa: A004
    mean,
    min,  # noqa: A004
    prod,
    sum,  # noqa: A004
)
from maxtool.graph.ops.table import OPS, Op, apply

__all__ = [
    "OPS",
    "Op",
    "abs",
    "add",
    "all",
    "any",
    "apply",
    "argmax",
    "argmin",
    "attention",
    "avg_pool2d",
    "cache_write_key",
    "cache_write_value",
    "call",
    "cast",
    "constant",
    "conv1d",
    "conv2d",
    "cumsum",
    "div",
    "embedding",
    "exp",
    "gelu",
    "group_norm",
    "layer_norm",
    "linear",
    "log",
    "logsoftmax",
    "matmul",
    "max",
    "max_pool2d",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mul",
    "negative",
    "permute",
    "print",
    "prod",
    "relu",
    "reshape",
    "rms_norm",
    "rope",
    "rsqrt",
    "scaled_dot_product_attention",
    "sigmoid",
    "silu",
    "slice_tensor",
    "softmax",
    "sqrt",
    "sub",
    "sum",
    "tanh",
    "top_k",
    "transfer_to",
    "transpose",
]
