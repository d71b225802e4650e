"""The kernels of the CPU by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from maxtool.compiler.kernels.cpu.attention import attention
from maxtool.compiler.kernels.cpu.cache import cache_write_key, cache_write_value
from maxtool.compiler.kernels.cpu.columns import pack_columns
from maxtool.compiler.kernels.cpu.convolution import convolution, pool
from maxtool.compiler.kernels.cpu.dot_attention import dot_attention
from maxtool.compiler.kernels.cpu.embedding import embedding
from maxtool.compiler.kernels.cpu.experts import expert_linear, weighted_sum
from maxtool.compiler.kernels.cpu.gather import gather_rows
from maxtool.compiler.kernels.cpu.linear import linear
from maxtool.compiler.kernels.cpu.nonzero import nonzero_places
from maxtool.compiler.kernels.cpu.norm import rms_norm
from maxtool.compiler.kernels.cpu.normalize import (
    group_norm_rows,
    layer_norm_rows,
    rms_norm_rows,
    softmax_rows,
)
from maxtool.compiler.kernels.cpu.permute import permute
from maxtool.compiler.kernels.cpu.pointwise import pointwise
from maxtool.compiler.kernels.cpu.positions import add_positions
from maxtool.compiler.kernels.cpu.power import integer_power
from maxtool.compiler.kernels.cpu.ranking import top_rows
from maxtool.compiler.kernels.cpu.reduction import cumsum_rows, index_rows, reduce_rows
from maxtool.compiler.kernels.cpu.rope import rope, rope_angles
from maxtool.compiler.kernels.cpu.sampling import sample
from maxtool.compiler.kernels.cpu.scatter import scatter_blocks, scatter_rows
from maxtool.compiler.kernels.cpu.sorting import sorted_places
from maxtool.compiler.target import CpuTarget

# Those whose inner loops are as wide as the register tile, as a vector register, or neither.
TILED: tuple[Callable[..., Any], ...] = (
    add_positions,
    attention,
    cache_write_key,
    cache_write_value,
    embedding,
    expert_linear,
    linear,
    pack_columns,
    pointwise,
    rms_norm,
    rope,
    weighted_sum,
)
LANED: tuple[Callable[..., Any], ...] = (
    convolution,
    dot_attention,
    group_norm_rows,
    layer_norm_rows,
    pool,
    reduce_rows,
    rms_norm_rows,
    softmax_rows,
)
SCALAR: tuple[Callable[..., Any], ...] = (
    cumsum_rows,
    gather_rows,
    index_rows,
    integer_power,
    nonzero_places,
    permute,
    rope_angles,
    sample,
    scatter_blocks,
    scatter_rows,
    sorted_places,
    top_rows,
)


def kernels(target: CpuTarget) -> dict[str, Callable[..., Any]]:
    """What builds each kernel for a CPU, by its name."""
    tiled = {one.__name__: partial(one, tile=target.tile) for one in TILED}
    laned = {one.__name__: partial(one, lanes=target.tile.lanes) for one in LANED}
    return {**tiled, **laned, **{one.__name__: one for one in SCALAR}}
