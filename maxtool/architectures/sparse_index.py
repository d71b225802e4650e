"""The index of sparse attention: small heads that choose the keys a query sees (DeepSeek-V3.2-Exp).

Heads of few elements meet one key for each position; what is above zero of their products, times a
number that each token has for each head, adds up to the score of a key. Those with the largest
scores are seen, the first of equal ones first. DeepSeek's own code multiplies queries and keys by a
Hadamard matrix first, which changes no product, and rounds them to eight bits: transformers does
neither, nor is it done here.
"""

from __future__ import annotations

import numpy as np

from maxtool.architectures.cache_layout import Location
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.rotary_angles import Turn, rotated
from maxtool.dtype import DType
from maxtool.graph import BufferType, Dim, DimLike, Tensor, ops
from maxtool.nn import LayerNorm, Linear, Module

# Of the norm of keys, whatever others have.
EPS = 1e-6
# The name of the buffer of keys, and its axis of positions.
BUFFER, AXIS = "index", 2


class SparseIndex(Module[[Tensor, Tensor, Turn, Location, Tensor | None], tuple[Tensor, Tensor]]):
    """A choice of keys for each query."""

    def __init__(self, config: DecoderConfig, dtype: DType) -> None:
        self.heads, self.dim = config.index_heads or 0, config.index_dim or 0
        self.count = config.index_topk or 0
        self.q = Linear(config.query_latent_size or 0, self.heads * self.dim, dtype)
        self.k = Linear(config.hidden_size, self.dim, dtype)
        self.k_norm = LayerNorm(self.dim, eps=EPS)
        self.weigh = Linear(config.hidden_size, self.heads, dtype)

    def buffer(self, rows: DimLike, context: int) -> BufferType:
        """The keys of so many texts, not rounded: a choice is one thing or another."""
        return BufferType(DType.float32, [rows, 1, context, self.dim])

    def forward(
        self, x: Tensor, read: Tensor, turn: Turn, location: Location, cache: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The keys that queries see, bool ``[batch, 1, queries, keys]``, and the written buffer.

        ``x [batch, seq, hidden]`` are tokens, the first of which stands at ``location``, and
        ``read`` their latents of queries. Without a buffer the new keys are all, in its place.
        """
        position, slot = location
        query = self._turned(self.q(read), self.heads, turn, location)
        new = self._turned(self.k_norm(self.k(x)), 1, turn, location)
        kept = new.permute([0, 2, 1, 3])
        if cache is not None:
            kept = ops.cache_write_value(cache, new, position, slot=slot)
        keys = kept if cache is None or slot is None else ops.gather(kept, slot, 0)
        visible = _visible(position, x.shape[1], keys.shape[AXIS])
        lowest = Tensor(-np.inf, DType.float32, x.device)
        scores = ops.where(visible, self._scores(x, query, keys), lowest)
        return ops.logical_and(visible, self._largest(scores)).unsqueeze(1), kept

    def _scores(self, x: Tensor, query: Tensor, keys: Tensor) -> Tensor:
        """The scores of all keys, ``[batch, queries, keys]``."""
        products = ops.matmul(query.permute([0, 2, 1, 3]), keys.permute([0, 1, 3, 2]))
        weights = self.weigh(x) * self.heads**-0.5
        positive = ops.relu(products * self.dim**-0.5)
        return ops.sum(positive * weights.permute([0, 2, 1]).unsqueeze(3), 1).squeeze(1)

    def _largest(self, scores: Tensor) -> Tensor:
        """The places of the largest scores of each query, as bool of the same shape."""
        places = ops.argsort(scores, ascending=False)
        first = ops.range(0, scores.shape[2], dtype=DType.int32, device=scores.device) < self.count
        return ops.scatter(
            ops.broadcast_to(Tensor(False, DType.bool, scores.device), scores.shape),
            ops.broadcast_to(first.reshape([1, 1, scores.shape[2]]), scores.shape),
            places,
        )

    def _turned(self, x: Tensor, heads: int, turn: Turn, location: Location) -> Tensor:
        """Heads of ``[batch, seq, heads * dim]`` as their positions change them."""
        by_head = x.reshape([*x.shape[:2], heads, self.dim])
        return by_head if turn.angles is None else rotated(by_head, turn.angles, location[0])


def _visible(position: Tensor, queries: Dim, keys: Dim) -> Tensor:
    """The keys that are not behind a query, bool ``[batch, queries, keys]``.

    The first query of each row stands at ``position``, int32 ``[batch]``, or ``[1]`` for all.
    """
    device = position.device
    rows = ops.range(0, queries, dtype=DType.int32, device=device).reshape([1, queries, 1])
    columns = ops.range(0, keys, dtype=DType.int32, device=device).reshape([1, 1, keys])
    return columns <= position.reshape([position.shape[0], 1, 1]) + rows
