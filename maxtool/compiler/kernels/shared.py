"""The kernels that are written once for all targets, by the requests that ask for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Concatenate

from maxtool.compiler.kernels import requests as r
from maxtool.compiler.kernels.backend import Backend
from maxtool.compiler.kernels.counted import nonzero_places
from maxtool.compiler.kernels.moving import gather_rows, permute
from maxtool.compiler.kernels.normalize import (
    group_norm_rows,
    layer_norm_rows,
    rms_norm_rows,
    softmax_rows,
)
from maxtool.compiler.kernels.pointwise import pointwise
from maxtool.compiler.kernels.positions import add_positions, rope_angles
from maxtool.compiler.kernels.power import integer_power
from maxtool.compiler.kernels.ranking import top_rows
from maxtool.compiler.kernels.reduction import cumsum_rows, index_rows, reduce_rows
from maxtool.compiler.kernels.requests import Options, PrimFunc, Request, Row
from maxtool.compiler.kernels.sampling import sample


def shared_row(
    request: Callable[Options, Request],
) -> Callable[[Callable[Concatenate[Backend, Options], PrimFunc]], Row]:
    """Return the row of a factory that takes a target's backend before the fields."""
    return lambda factory: (request, factory)


SHARED: tuple[Row, ...] = (
    shared_row(r.AddPositions)(add_positions),
    shared_row(r.CumsumRows)(cumsum_rows),
    shared_row(r.GatherRows)(gather_rows),
    shared_row(r.GroupNormRows)(group_norm_rows),
    shared_row(r.IndexRows)(index_rows),
    shared_row(r.IntegerPower)(integer_power),
    shared_row(r.LayerNormRows)(layer_norm_rows),
    shared_row(r.NonzeroPlaces)(nonzero_places),
    shared_row(r.Permute)(permute),
    shared_row(r.Pointwise)(pointwise),
    shared_row(r.ReduceRows)(reduce_rows),
    shared_row(r.RmsNormRows)(rms_norm_rows),
    shared_row(r.RopeAngles)(rope_angles),
    shared_row(r.Sample)(sample),
    shared_row(r.SoftmaxRows)(softmax_rows),
    shared_row(r.TopRows)(top_rows),
)


def on_backend(
    backend: Backend, rows: Sequence[Row] = SHARED
) -> dict[Callable[..., Request], Callable[..., PrimFunc]]:
    """Return the factories of such rows, with the backend bound."""
    return {request: partial(factory, backend) for request, factory in rows}
