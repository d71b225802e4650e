"""The factories of the CPU's kernels, by the type of their requests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from maxtool.compiler.kernels import requests as r
from maxtool.compiler.kernels.cpu import cpu_requests as c
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
from maxtool.compiler.kernels.requests import PrimFunc, Request, Row, row, row_with
from maxtool.compiler.target import CpuTarget, Tile

# Kernels whose inner loops are as wide as the register tile, as a vector register, or neither.
TILED: tuple[Row, ...] = (
    row_with(Tile, r.AddPositions)(add_positions),
    row_with(Tile, c.Attention)(attention),
    row_with(Tile, r.CacheWriteKey)(cache_write_key),
    row_with(Tile, r.CacheWriteValue)(cache_write_value),
    row_with(Tile, r.Embedding)(embedding),
    row_with(Tile, c.PackedExpertLinear)(expert_linear),
    row_with(Tile, c.PackedLinear)(linear),
    row_with(Tile, c.PackColumns)(pack_columns),
    row_with(Tile, r.Pointwise)(pointwise),
    row_with(Tile, r.RmsNorm)(rms_norm),
    row_with(Tile, r.Rope)(rope),
    row_with(Tile, r.WeightedSum)(weighted_sum),
)
LANED: tuple[Row, ...] = (
    row_with(int, r.Convolution)(convolution),
    row_with(int, r.DotAttention)(dot_attention),
    row_with(int, r.GroupNormRows)(group_norm_rows),
    row_with(int, r.LayerNormRows)(layer_norm_rows),
    row_with(int, r.Pool)(pool),
    row_with(int, r.ReduceRows)(reduce_rows),
    row_with(int, r.RmsNormRows)(rms_norm_rows),
    row_with(int, r.SoftmaxRows)(softmax_rows),
)
SCALAR: tuple[Row, ...] = (
    row(r.CumsumRows)(cumsum_rows),
    row(r.GatherRows)(gather_rows),
    row(r.IndexRows)(index_rows),
    row(r.IntegerPower)(integer_power),
    row(r.NonzeroPlaces)(nonzero_places),
    row(r.Permute)(permute),
    row(r.RopeAngles)(rope_angles),
    row(r.Sample)(sample),
    row(r.ScatterBlocks)(scatter_blocks),
    row(r.ScatterRows)(scatter_rows),
    row(r.SortedPlaces)(sorted_places),
    row(r.TopRows)(top_rows),
)


def kernels(target: CpuTarget) -> dict[Callable[..., Request], Callable[..., PrimFunc]]:
    """Return the factory of each kernel for a CPU, by the type of its requests."""
    tile = target.tile
    tiled = {request: partial(factory, tile) for request, factory in TILED}
    laned = {request: partial(factory, tile.lanes) for request, factory in LANED}
    return {**tiled, **laned, **dict(SCALAR)}
