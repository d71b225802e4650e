"""The operations: functions that trace when an operand is symbolic, and run when none is."""

from maxtool.graph import operators
from maxtool.graph.ops.attention import scaled_dot_product_attention
from maxtool.graph.ops.caching import attention, cache_write_key, cache_write_value
from maxtool.graph.ops.collective import all_gather, all_reduce
from maxtool.graph.ops.comparison import (
    equal,
    greater,
    greater_equal,
    is_inf,
    is_nan,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
    where,
)
from maxtool.graph.ops.control import cond, while_loop
from maxtool.graph.ops.convolution import avg_pool2d, conv1d, conv2d, max_pool2d
from maxtool.graph.ops.creation import (
    arange,
    band_part,
    outer,
    range,  # noqa: A004
    shape_to_tensor,
)
from maxtool.graph.ops.elementwise import (
    abs,  # noqa: A004 - the operation's name
    acos,
    add,
    atanh,
    cast,
    ceil,
    clamp,
    clip,
    cos,
    div,
    erf,
    exp,
    floor,
    floordiv,
    gelu,
    log,
    log1p,
    maximum,
    minimum,
    mod,
    mul,
    negate,
    negative,
    pow,  # noqa: A004
    relu,
    round,  # noqa: A004
    rsqrt,
    sigmoid,
    silu,
    sin,
    sqrt,
    sub,
    tanh,
    trunc,
)
from maxtool.graph.ops.experts import expert_linear, weighted_sum
from maxtool.graph.ops.flow import (
    call,
    constant,
    print,  # noqa: A004 - the operation's name
    transfer_to,
)
from maxtool.graph.ops.gathering import gather, gather_nd, scatter, scatter_add, scatter_nd
from maxtool.graph.ops.indexing import slice_tensor
from maxtool.graph.ops.joining import (
    chunk,
    concat,
    pad,
    repeat_interleave,
    split,
    stack,
    tile,
)
from maxtool.graph.ops.layout import (
    broadcast_to,
    flatten,
    permute,
    rebind,
    reshape,
    squeeze,
    transpose,
    unsqueeze,
)
from maxtool.graph.ops.neural import embedding, linear, matmul
from maxtool.graph.ops.nonzero import nonzero
from maxtool.graph.ops.normalization import group_norm, layer_norm, logsoftmax, rms_norm, softmax
from maxtool.graph.ops.positions import add_positions, rope, rope_angles
from maxtool.graph.ops.ranking import argsort, top_k
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
from maxtool.graph.ops.sampling import sample
from maxtool.graph.ops.statistics import std, variance
from maxtool.graph.ops.table import OPS, Op, apply

__all__ = [
    "OPS",
    "Op",
    "abs",
    "acos",
    "add",
    "add_positions",
    "all",
    "all_gather",
    "all_reduce",
    "any",
    "apply",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "atanh",
    "attention",
    "avg_pool2d",
    "band_part",
    "broadcast_to",
    "cache_write_key",
    "cache_write_value",
    "call",
    "cast",
    "ceil",
    "chunk",
    "clamp",
    "clip",
    "concat",
    "cond",
    "constant",
    "conv1d",
    "conv2d",
    "cos",
    "cumsum",
    "div",
    "embedding",
    "equal",
    "erf",
    "exp",
    "expert_linear",
    "flatten",
    "floor",
    "floordiv",
    "gather",
    "gather_nd",
    "gelu",
    "greater",
    "greater_equal",
    "group_norm",
    "is_inf",
    "is_nan",
    "layer_norm",
    "less",
    "less_equal",
    "linear",
    "log",
    "log1p",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsoftmax",
    "matmul",
    "max",
    "max_pool2d",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mod",
    "mul",
    "negate",
    "negative",
    "nonzero",
    "not_equal",
    "outer",
    "pad",
    "permute",
    "pow",
    "print",
    "prod",
    "range",
    "rebind",
    "relu",
    "repeat_interleave",
    "reshape",
    "rms_norm",
    "rope",
    "rope_angles",
    "round",
    "rsqrt",
    "sample",
    "scaled_dot_product_attention",
    "scatter",
    "scatter_add",
    "scatter_nd",
    "shape_to_tensor",
    "sigmoid",
    "silu",
    "sin",
    "slice_tensor",
    "softmax",
    "split",
    "sqrt",
    "squeeze",
    "stack",
    "std",
    "sub",
    "sum",
    "tanh",
    "tile",
    "top_k",
    "transfer_to",
    "transpose",
    "trunc",
    "unsqueeze",
    "variance",
    "weighted_sum",
    "where",
    "while_loop",
]

operators.install({name: globals()[name] for name in __all__})
