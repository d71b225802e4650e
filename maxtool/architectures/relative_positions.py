"""Biases of scores by how far a key stands from a query (T5, Raffel et al. 2020).

Distances fall into buckets: near ones have one each, farther ones share wider and wider ones. The
bucket of each distance is a table, whose numbers are transformers' to the last rounding.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from maxtool.architectures.entry import Table
from maxtool.architectures.rope_options import RopeOptions
from maxtool.dtype import DType
from maxtool.graph import DerivedWeight, DimLike, Tensor, Weight, ops
from maxtool.nn import Module

Array: TypeAlias = np.ndarray[Any, Any]


def buckets_of(distances: Array, count: int, farthest: int, *, causal: bool) -> Array:
    """The bucket of each distance from a query to a key, int32.

    Args:
        distances: Positions of keys less those of queries.
        count: How many buckets there are.
        farthest: The distance from which on all are in the last one.
        causal: Whether no key stands behind its query: such distances are in the first bucket.
            Otherwise half of the buckets are for these.
    """
    behind = np.zeros_like(distances)
    if causal:
        far = np.maximum(-distances, 0)
    else:
        count //= 2
        behind, far = np.where(distances > 0, count, 0), np.abs(distances)
    exact = count // 2
    with np.errstate(divide="ignore"):  # of distance 0, which has a bucket of its own
        logs = np.log(far.astype(np.float32) / np.float32(exact))
    steps = logs / np.float32(math.log(farthest / exact)) * np.float32(count - exact)
    shared = exact + np.maximum(steps, 0).astype(np.int64)
    found: Array = behind + np.where(far < exact, far, np.minimum(shared, count - 1))
    return found.astype(np.int32)


class RelativeBias(Module[[Tensor, DimLike, DimLike], Tensor]):
    """A learned number for each head and bucket, which is added to scores.

    Args:
        name: That of its table.
        positions: The most that queries and keys stand at.
        options: How many heads and buckets there are, and how far apart the last bucket begins.
        causal: Whether keys behind a query are hidden from it.

    Attributes:
        weight: ``[buckets, heads]``, float32.
    """

    def __init__(self, name: str, positions: int, options: RopeOptions, *, causal: bool) -> None:
        heads = options.n_heads
        count, farthest = options.relative_buckets or 1, options.relative_distance or 1
        self.weight = Weight("weight", DType.float32, (count, heads))
        self.buckets = DerivedWeight(
            f"{name}.buckets",
            DType.int32,
            (2 * positions - 1,),
            lambda: buckets_of(np.arange(1 - positions, positions), count, farthest, causal=causal),
        )
        self.heads, self.positions, self.causal = heads, positions, causal

    @property
    def table(self) -> Table:
        """The table of buckets, which the positions of a text are rows of."""
        return Table(self.buckets.name, "context", self.positions - 1)

    def forward(self, first: Tensor, queries: DimLike, keys: DimLike) -> Tensor:
        """The biases ``[1, heads, queries, keys]``; queries begin at ``first``, int32 ``[1]``."""
        device = first.device
        rows = first + ops.range(0, queries, dtype=DType.int32, device=device)
        columns = ops.range(0, keys, dtype=DType.int32, device=device)
        distances = columns.reshape([1, keys]) - rows.reshape([queries, 1])
        buckets = ops.gather(self.buckets.on(device), distances + (self.positions - 1), 0)
        biases = ops.gather(self.weight, buckets, 0).permute([2, 0, 1])
        if self.causal:
            hidden = ops.greater(distances, 0)
            biases = ops.where(hidden, Tensor(-np.inf, DType.float32, device), biases)
        return biases.reshape([1, self.heads, queries, keys])
