"""The operations: functions that trace when an operand is symbolic, and run when none is."""

from maxtool.graph import operators
from maxtool.graph.ops import bits, comparison, elementwise, reduction
from maxtool.graph.ops.attention import scaled_dot_product_attention
from maxtool.graph.ops.bits import *  # noqa: F403 - its own list says which
from maxtool.graph.ops.caching import attention, cache_write_key, cache_write_value
from maxtool.graph.ops.channel_blocks import depth_to_space, space_to_depth
from maxtool.graph.ops.collective import all_gather, all_reduce
from maxtool.graph.ops.comparison import *  # noqa: F403 - its own list says which
from maxtool.graph.ops.control import cond, while_loop
from maxtool.graph.ops.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    exact_convolution,
)
from maxtool.graph.ops.counting import counted
from maxtool.graph.ops.creation import arange, band_part, outer, range, shape_to_tensor  # noqa: A004
from maxtool.graph.ops.elementwise import *  # noqa: F403 - its own list says which
from maxtool.graph.ops.experts import expert_linear, weighted_sum
from maxtool.graph.ops.flow import call, constant, print, transfer_to  # noqa: A004
from maxtool.graph.ops.gathering import gather, gather_nd, scatter, scatter_add, scatter_nd
from maxtool.graph.ops.grid_sampling import grid_sample
from maxtool.graph.ops.indexing import slice_tensor
from maxtool.graph.ops.integer_convolution import integer_convolution
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
from maxtool.graph.ops.normalization import (
    group_norm,
    l2_norm,
    layer_norm,
    logsoftmax,
    rms_norm,
    softmax,
)
from maxtool.graph.ops.operation_table import OPS, Op, apply
from maxtool.graph.ops.pooling import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    lp_pool,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    max_pool_indices,
)
from maxtool.graph.ops.positions import add_positions, rope, rope_angles
from maxtool.graph.ops.quantized_cache import quantize_q8_0, quantized_attention
from maxtool.graph.ops.ranking import argsort, top_k
from maxtool.graph.ops.recurrence import causal_conv1d, linear_attention, selective_scan
from maxtool.graph.ops.reduction import *  # noqa: F403 - its own list says which
from maxtool.graph.ops.resizing import resize
from maxtool.graph.ops.sampling import sample
from maxtool.graph.ops.statistics import std, variance

__all__ = ["OPS", "Op", "apply"]
__all__ += ["add_positions", "rope", "rope_angles"]
__all__ += ["all_gather", "all_reduce"]
__all__ += ["arange", "band_part", "outer", "range", "shape_to_tensor"]
__all__ += ["argsort", "sample", "top_k"]
__all__ += ["attention", "cache_write_key", "cache_write_value", "scaled_dot_product_attention"]
__all__ += ["quantize_q8_0", "quantized_attention"]
__all__ += ["causal_conv1d", "linear_attention", "selective_scan"]
__all__ += ["avg_pool1d", "avg_pool2d", "avg_pool3d", "lp_pool"]
__all__ += ["conv1d", "conv2d", "conv3d"]
__all__ += ["integer_convolution"]
__all__ += ["exact_convolution"]
__all__ += ["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]
__all__ += ["max_pool1d", "max_pool2d", "max_pool3d", "max_pool_indices"]
__all__ += ["broadcast_to", "flatten", "permute", "rebind", "reshape"]
__all__ += ["squeeze", "transpose", "unsqueeze"]
__all__ += ["call", "cond", "constant", "print", "transfer_to", "while_loop"]
__all__ += ["chunk", "concat", "pad", "repeat_interleave", "split", "stack", "tile"]
__all__ += ["depth_to_space", "grid_sample", "resize", "space_to_depth"]
__all__ += ["embedding", "expert_linear", "linear", "matmul", "weighted_sum"]
__all__ += ["counted", "gather", "gather_nd", "nonzero", "scatter", "scatter_add", "scatter_nd"]
__all__ += ["group_norm", "l2_norm", "layer_norm", "logsoftmax", "rms_norm", "softmax"]
__all__ += ["slice_tensor", "std", "variance"]
__all__ += bits.__all__
__all__ += comparison.__all__
__all__ += elementwise.__all__
__all__ += reduction.__all__

operators.install({name: globals()[name] for name in __all__})
