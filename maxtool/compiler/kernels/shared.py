"""The kernels that are written once for all targets, by the requests that ask for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from maxtool.compiler.kernels import (
    causal_convolution,
    convolution,
    kv_cache_write,
    linear_attention,
    moving,
    nonzero_indices,
    normalize,
    pointwise,
    pooling,
    positions,
    power,
    ranking,
    reduction,
    selective_scan,
    sorting,
    token_sampling,
    weighted_sum,
)
from maxtool.compiler.kernels import requests as r
from maxtool.compiler.kernels.backend import Backend, shared_row
from maxtool.compiler.kernels.requests import PrimFunc, Request, Row

SHARED: tuple[Row, ...] = (
    shared_row(r.AddPositions)(positions.add_positions),
    shared_row(r.CacheWrite)(kv_cache_write.cache_write),
    shared_row(r.CausalConvolution)(causal_convolution.causal_convolution),
    shared_row(r.Convolution)(convolution.convolution),
    shared_row(r.CumsumRows)(reduction.cumsum_rows),
    shared_row(r.GatherRows)(moving.gather_rows),
    shared_row(r.GroupNormRows)(normalize.group_norm_rows),
    shared_row(r.IndexRows)(reduction.index_rows),
    shared_row(r.IntegerPower)(power.integer_power),
    shared_row(r.L2NormRows)(normalize.l2_norm_rows),
    shared_row(r.LayerNormRows)(normalize.layer_norm_rows),
    shared_row(r.LinearAttention)(linear_attention.linear_attention),
    shared_row(r.NonzeroPlaces)(nonzero_indices.nonzero_places),
    shared_row(r.Permute)(moving.permute),
    shared_row(r.Pointwise)(pointwise.pointwise),
    shared_row(r.Pool)(pooling.pool),
    shared_row(r.PoolIndices)(pooling.pool_indices),
    shared_row(r.ReduceRows)(reduction.reduce_rows),
    shared_row(r.RmsNormRows)(normalize.rms_norm_rows),
    shared_row(r.RopeAngles)(positions.rope_angles),
    shared_row(r.Sample)(token_sampling.sample),
    shared_row(r.ScatterBlocks)(moving.scatter_blocks),
    shared_row(r.ScatterRows)(moving.scatter_rows),
    shared_row(r.SelectiveScan)(selective_scan.selective_scan),
    shared_row(r.SoftmaxRows)(normalize.softmax_rows),
    shared_row(r.SortedPlaces)(sorting.sorted_places),
    shared_row(r.TopRows)(ranking.top_rows),
    shared_row(r.WeightedSum)(weighted_sum.weighted_sum),
)


def on_backend(backend: Backend) -> dict[Callable[..., Request], Callable[..., PrimFunc]]:
    """Return the factories of all of them, with the backend bound."""
    return {request: partial(factory, backend) for request, factory in SHARED}
