"""The kernels of NVIDIA GPUs by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from maxtool.compiler.kernels.cuda.attention import attention
from maxtool.compiler.kernels.cuda.attention_join import attention_join
from maxtool.compiler.kernels.cuda.attention_split import attention_split, attention_step
from maxtool.compiler.kernels.cuda.cache import (
    cache_write_key,
    cache_write_value,
    rope_into_cache,
)
from maxtool.compiler.kernels.cuda.convolution import convolution, pool
from maxtool.compiler.kernels.cuda.dot_attention import dot_attention
from maxtool.compiler.kernels.cuda.embedding import embedding
from maxtool.compiler.kernels.cuda.expert_order import expert_order
from maxtool.compiler.kernels.cuda.experts import expert_linear
from maxtool.compiler.kernels.cuda.few_products import gated_linear, linears
from maxtool.compiler.kernels.cuda.linear import linear
from maxtool.compiler.kernels.cuda.moving import gather_rows, permute, scatter_blocks, scatter_rows
from maxtool.compiler.kernels.cuda.narrow import narrow
from maxtool.compiler.kernels.cuda.nonzero import nonzero_places
from maxtool.compiler.kernels.cuda.norm import chain_rms_norm, rms_norm
from maxtool.compiler.kernels.cuda.normalize import (
    group_norm_rows,
    layer_norm_rows,
    rms_norm_rows,
    softmax_rows,
)
from maxtool.compiler.kernels.cuda.pointwise import pointwise
from maxtool.compiler.kernels.cuda.positions import add_positions, rope, rope_angles
from maxtool.compiler.kernels.cuda.power import integer_power
from maxtool.compiler.kernels.cuda.ranking import sorted_places, top_rows
from maxtool.compiler.kernels.cuda.reduction import cumsum_rows, index_rows, reduce_rows
from maxtool.compiler.kernels.cuda.sampling import sample
from maxtool.compiler.kernels.cuda.weighted_sum import weighted_sum

KERNELS: tuple[Callable[..., Any], ...] = (
    add_positions,
    chain_rms_norm,
    attention_join,
    attention_split,
    attention_step,
    cache_write_key,
    cache_write_value,
    convolution,
    cumsum_rows,
    embedding,
    expert_order,
    gather_rows,
    group_norm_rows,
    index_rows,
    integer_power,
    layer_norm_rows,
    narrow,
    nonzero_places,
    permute,
    pointwise,
    pool,
    reduce_rows,
    rms_norm,
    rms_norm_rows,
    rope,
    rope_angles,
    rope_into_cache,
    sample,
    scatter_blocks,
    scatter_rows,
    softmax_rows,
    sorted_places,
    top_rows,
    weighted_sum,
)
# Those whose tiles are as large as the shared memory of a block allows.
TILED: tuple[Callable[..., Any], ...] = (
    attention,
    dot_attention,
    expert_linear,
    gated_linear,
    linear,
    linears,
)


def kernels(target: Any) -> dict[str, Callable[..., Any]]:  # noqa: ANN401
    """What builds each kernel for GPUs, by its name."""
    tiled = {one.__name__: partial(one, shared_memory=target.shared_memory) for one in TILED}
    return {**tiled, **{one.__name__: one for one in KERNELS}}
