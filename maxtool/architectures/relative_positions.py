"""Biases of scores by how far a key stands from a query (T5, Raffel et al. 2020).

Distances fall into buckets: near ones have one each, farther ones share wider and wider ones. The
bucket of each distance is a table, whose numbers are transformers' to the last rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from maxtool.architectures.entry import Table
from maxtool.dtype import DType
from maxtool.graph import DerivedWeight, DimLike, Tensor, Weight, ops
from maxtool.nn import Module

Array: TypeAlias = np.ndarray[Any, Any]
# The bucket of each query and key, int32 ``[queries, keys]``, and which keys are hidden, if any.
Relative: TypeAlias = tuple[Tensor, Tensor | None]


class Buckets(Protocol):
    """The options of a model whose heads have biases for buckets of distances."""

    @property
    def n_heads(self) -> int:
        """The number of heads."""

    @property
    def relative_buckets(self) -> int | None:
        """The number of buckets; None where there are no such biases."""

    @property
    def relative_distance(self) -> int | None:
        """The distance from which on all are in the last bucket."""


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


class RelativePositions:
    """Buckets of the distances between the tokens of a text; derived, as angles are.

    Args:
        name: That of the table.
        positions: The most that queries and keys stand at.
        options: How many buckets there are, and how far apart the last one begins.
        causal: Whether keys behind a query are hidden from it.
    """

    def __init__(self, name: str, positions: int, options: Buckets, *, causal: bool) -> None:
        count, farthest = options.relative_buckets or 1, options.relative_distance or 1
        self.buckets = DerivedWeight(
            f"{name}.buckets",
            DType.int32,
            (2 * positions - 1,),
            lambda: buckets_of(np.arange(1 - positions, positions), count, farthest, causal=causal),
        )
        self.positions, self.causal = positions, causal

    @property
    def table(self) -> Table:
        """The table of buckets, which the positions of a text are rows of."""
        return Table(self.buckets.name, "context", self.positions - 1)

    def of(self, first: Tensor, queries: DimLike, keys: DimLike) -> Relative:
        """The buckets of so many queries and keys; queries begin at ``first``, int32 ``[1]``."""
        device = first.device
        rows = first + ops.range(0, queries, dtype=DType.int32, device=device)
        columns = ops.range(0, keys, dtype=DType.int32, device=device)
        distances = columns.reshape([1, keys]) - rows.reshape([queries, 1])
        table = self.buckets.on(device)
        buckets = ops.gather(table, distances + (self.positions - 1), 0)
        return buckets, ops.greater(distances, 0) if self.causal else None


class RelativeBias(Module[[Relative], Tensor]):
    """A learned number for each bucket and head, which is added to scores.

    Args:
        options: How many buckets and heads there are.
        rows: Rows of the table, where there are more than buckets.

    Attributes:
        weight: ``[rows, heads]``, float32.
    """

    def __init__(self, options: Buckets, rows: int | None = None) -> None:
        self.heads, count = options.n_heads, rows or options.relative_buckets or 1
        self.weight = Weight("weight", DType.float32, (count, self.heads))

    def forward(self, relative: Relative) -> Tensor:
        """The biases ``[1, heads, queries, keys]``."""
        buckets, hidden = relative
        biases = ops.gather(self.weight, buckets, 0).permute([2, 0, 1])
        if hidden is not None:
            nothing = Tensor(-np.inf, DType.float32, biases.device)
            biases = ops.where(hidden, nothing, biases)
        return biases.reshape([1, self.heads, *buckets.shape])


def biases_of(
    tables: Sequence[RelativeBias],
    distances: RelativePositions,
    places: tuple[Tensor, DimLike, DimLike],
    layers: int,
) -> list[Tensor | None]:
    """The biases of each of so many layers, which may share the last of fewer tables, or have none.

    ``places`` are the first query, and the numbers of queries and keys.
    """
    if not tables:
        return [None] * layers
    far = distances.of(*places)
    found = [table(far) for table in tables]
    return [found[min(layer, len(found) - 1)] for layer in range(layers)]
