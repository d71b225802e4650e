"""Vectors of distances between tokens, which queries and keys are compared with (DeBERTa).

He et al. 2021, "DeBERTa: Decoding-enhanced BERT with disentangled attention", and its second
version, in which far distances share vectors. The row of each distance is a table, whose numbers
are transformers'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from maxtool.architectures.encoder_config import EncoderConfig
from maxtool.architectures.entry import Table
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.graph import DerivedWeight, DimLike, FoldedWeight, Tensor, ops
from maxtool.nn import Embedding, LayerNorm, Linear

Array: TypeAlias = np.ndarray[Any, Any]
# For each term the place of the score of a query and a key among those of a text with all
# distances, ``[seq * rows]``: int32 ``[queries, keys]``.
Places: TypeAlias = dict[str, Tensor]


def rows_of(distances: Array, limit: int, buckets: int | None) -> Array:
    """The row of each distance in the table of vectors, int32.

    Args:
        distances: Positions of queries less those of keys.
        limit: Distances from which on all are in the last row, either way.
        buckets: Rows of each way where far distances share some, by their logarithm.
    """
    span = buckets or limit
    signed = distances if buckets is None else _shared(distances, limit, buckets)
    rows: Array = np.clip(signed + span, 0, 2 * span - 1)
    return rows.astype(np.int32)


def _shared(distances: Array, limit: int, buckets: int) -> Array:
    """Distances of which those beyond half of the buckets share some, rounded up."""
    half, far = buckets // 2, np.abs(distances)
    ratios = np.maximum(far, half).astype(np.float32) / np.float32(half)
    logs = np.log(ratios) / np.log(np.float32((limit - 1) / half))
    steps = np.ceil(logs * np.float32(half - 1))
    shared = np.where(far <= half, far, steps + half)
    return (np.sign(distances) * shared).astype(np.int64)


MOST_PLACES = 1 << 31


class DistanceRows:
    """Rows of the distances between the tokens of a text; derived, as angles are.

    Args:
        config: The encoder's.
        positions: The most that tokens stand at.

    Raises:
        ConfigurationError: If places are beyond what int32 holds.
    """

    def __init__(self, config: EncoderConfig, positions: int) -> None:
        limit, buckets = config.distance_limit or 1, config.distance_buckets
        self.terms, self.count = config.distance_terms or (), 2 * config.distance_span
        self.rows = DerivedWeight(
            "distances.rows",
            DType.int32,
            (2 * positions - 1,),
            lambda: rows_of(np.arange(1 - positions, positions), limit, buckets),
        )
        self.positions = positions
        if positions * self.count >= MOST_PLACES:
            what = f"{positions} positions with {self.count} vectors of distances"
            raise ConfigurationError(what, hint="a shorter context has fewer")

    @property
    def table(self) -> Table:
        """The table of rows, which the positions of a text are rows of."""
        return Table(self.rows.name, "context", self.positions - 1)

    def of(self, input_ids: Tensor) -> Places:
        """The places for a text ``[batch, seq]``."""
        seq: DimLike = input_ids.shape[1]
        each = ops.range(0, seq, dtype=DType.int32, device=input_ids.device)
        of_query, of_key = each.reshape([seq, 1]), each.reshape([1, seq])
        table = self.rows.on(input_ids.device)
        rows = ops.gather(table, of_query - of_key + (self.positions - 1), 0)
        own = {"c2p": of_query, "p2c": of_key}
        return {term: own[term] * self.count + rows for term in self.terms}


@dataclass(frozen=True, slots=True)
class DistanceVectors:
    """A learned vector for each distance, of which every layer makes keys and queries.

    Attributes:
        table: ``[2 * span, hidden]``.
        norm: What normalises each, if anything does.
    """

    table: Embedding
    norm: LayerNorm | None

    def through(self, layer: Linear, heads: int) -> FoldedWeight:
        """The vectors behind a layer, by heads: ``[heads, head_dim, 2 * span]``."""
        parts = {"matrix": layer.weight, "vectors": self.table.weight, "bias": layer.bias}
        eps = 0.0
        if self.norm is not None:
            parts |= {"factors": self.norm.weight, "offsets": self.norm.bias}
            eps = self.norm.eps
        sources = {name: weight for name, weight in parts.items() if weight is not None}
        inner, rows = int(layer.weight.shape[0]), int(self.table.weight.shape[0])
        shape = (heads, inner // heads, rows)

        def fold(*arrays: Array) -> Array:
            given = dict(zip(sources, arrays, strict=True))
            vectors = given["vectors"]
            if "factors" in given:
                vectors = _normed(vectors, eps) * given["factors"] + given.get("offsets", 0.0)
            made: Array = (vectors @ given["matrix"].T + given.get("bias", 0.0)).T.reshape(shape)
            return made

        return FoldedWeight(shape, [*sources.values()], fold)


def _normed(vectors: Array, eps: float) -> Array:
    """Vectors of mean 0 and deviation 1, as a layer norm makes them."""
    centred = vectors - vectors.mean(1, keepdims=True)
    normed: Array = centred / np.sqrt((centred * centred).mean(1, keepdims=True) + eps)
    return normed
