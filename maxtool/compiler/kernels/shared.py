"""The kernels that are written once for all targets, by the requests that ask for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from maxtool.compiler.kernels import (
    cache,
    convolution,
    moving,
    nonzero_indices,
    normalize,
    pointwise,
    positions,
    power,
    ranking,
    reduction,
    sorting,
    token_sampling,
    weighted_sum,
)
from maxtool.compiler.kernels.backend import Backend
from maxtool.compiler.kernels.requests import PrimFunc, Request, Row

SHARED: tuple[Row, ...] = (
    *cache.KERNELS,
    *convolution.KERNELS,
    *nonzero_indices.KERNELS,
    *moving.KERNELS,
    *normalize.KERNELS,
    *pointwise.KERNELS,
    *positions.KERNELS,
    *power.KERNELS,
    *ranking.KERNELS,
    *reduction.KERNELS,
    *sorting.KERNELS,
    *token_sampling.KERNELS,
    *weighted_sum.KERNELS,
)


def on_backend(
    backend: Backend, rows: Sequence[Row] = SHARED
) -> dict[Callable[..., Request], Callable[..., PrimFunc]]:
    """Return the factories of such rows, with the backend bound."""
    return {request: partial(factory, backend) for request, factory in rows}
