"""The operations: functions that trace when an operand is symbolic, and run when none is."""

from maxtool.graph import operators
from maxtool.graph.ops import elementwise, reduction
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
from maxtool.graph.ops.elementwise import *  # noqa: F403 - its own list says which
from maxtool.graph.ops.experts import expert_linear, weighted_sum
from maxtool.graph.ops.flow import (
    call,
    constant,
    print,  # noqa: A004 - the operation's name
    transfer_to,
)
from maxtool.graph.ops.gathering import gather, gather_nd, scatter, scatter_add, scatter_nd
from maxtool.graph.ops.indexing import slice_tensor
from maxtool.graph.ops.joining import chunk, concat, pad, repeat_interleave, split, stack, tile
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
from maxtool.graph.ops.operation_table import OPS, Op, apply
from maxtool.graph.ops.positions import add_positions, rope, rope_angles
from maxtool.graph.ops.ranking import argsort, top_k
from maxtool.graph.ops.reduction import *  # noqa: F403 - its own list says which
from maxtool.graph.ops.sampling import sample
from maxtool.graph.ops.statistics import std, variance

__all__ = [
    "OPS",
    "Op",
    "add_positions",
    "all_gather",
    "all_reduce",
    "apply",
    "arange",
    "argsort",
    "attention",
    "avg_pool2d",
    "band_part",
    "broadcast_to",
    "cache_write_key",
    "cache_write_value",
    "call",
    "chunk",
    "concat",
    "cond",
    "constant",
    "conv1d",
    "conv2d",
    "embedding",
    "equal",
    "expert_linear",
    "flatten",
    "gather",
    "gather_nd",
    "greater",
    "greater_equal",
    "group_norm",
    "is_inf",
    "is_nan",
    "layer_norm",
    "less",
    "less_equal",
    "linear",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsoftmax",
    "matmul",
    "max_pool2d",
    "nonzero",
    "not_equal",
    "outer",
    "pad",
    "permute",
    "print",
    "range",
    "rebind",
    "repeat_interleave",
    "reshape",
    "rms_norm",
    "rope",
    "rope_angles",
    "sample",
    "scaled_dot_product_attention",
    "scatter",
    "scatter_add",
    "scatter_nd",
    "shape_to_tensor",
    "slice_tensor",
    "softmax",
    "split",
    "squeeze",
    "stack",
    "std",
    "tile",
    "top_k",
    "transfer_to",
    "transpose",
    "unsqueeze",
    "variance",
    "weighted_sum",
    "where",
    "while_loop",
]
__all__ += elementwise.__all__
__all__ += reduction.__all__

operators.install({name: globals()[name] for name in __all__})
