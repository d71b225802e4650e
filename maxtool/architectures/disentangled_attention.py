"""Attention whose scores have terms for the distance of a key from a query (DeBERTa)."""

from __future__ import annotations

import functools
import operator

from maxtool.architectures.distance_vectors import DistanceVectors, Places
from maxtool.architectures.encoder_attention import HeadsOfAttention
from maxtool.architectures.encoder_config import EncoderConfig
from maxtool.architectures.head_options import head_options
from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.nn import Linear


class DisentangledAttention(HeadsOfAttention):
    """Attention with the terms ``c2p`` (queries with distances) and ``p2c`` (keys with them).

    Args:
        config: The encoder's.
        dtype: The element type of the matrices.
        vectors: Those of distances.

    Attributes:
        distance_k: The layer that makes keys of distances, where it is not that of tokens.
        distance_q: The layer that makes queries of them, likewise.
    """

    def __init__(self, config: EncoderConfig, dtype: DType, vectors: DistanceVectors) -> None:
        hidden, terms = config.hidden_size, config.distance_terms or ()
        super().__init__(**head_options(config), dtype=dtype)
        self.factor = config.score_scale or config.head_dim**-0.5
        is_own = not config.distance_shared

        def own(term: str) -> Linear | None:
            has_layer = is_own and term in terms
            inner = config.n_heads * config.head_dim
            return Linear(hidden, inner, dtype, has_bias=config.qkv_bias) if has_layer else None

        self.distance_k, self.distance_q = own("c2p"), own("p2c")
        makers = {"c2p": self.distance_k or self.k, "p2c": self.distance_q or self.q}
        self.compared = {term: vectors.through(makers[term], config.n_heads) for term in terms}

    def forward(self, x: Tensor, mask: Tensor, places: Places) -> Tensor:
        """Map ``[batch, seq, hidden]`` to its shape; ``mask`` is added to scores, as biases are."""
        query, key, value = self._parts(x)
        sides = {"c2p": query, "p2c": key}
        terms = (self._term(term, sides[term], at) for term, at in places.items())
        biases = functools.reduce(operator.add, terms) * self.factor
        return self._mixed(query, key, value, biases + mask)

    def _term(self, term: str, side: Tensor, places: Tensor) -> Tensor:
        """The scores of heads ``[batch, seq, heads, head_dim]`` with the distances of all keys."""
        scores = ops.matmul(side.permute([0, 2, 1, 3]), self.compared[term])
        batch, heads, seq, rows = scores.shape
        return ops.gather(scores.reshape([batch, heads, seq * rows]), places, 2)
