"""Options of attention to the keys that an index chooses (DeepSeek-V3.2-Exp)."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.decoder_sizes import DecoderSizes, chosen


@dataclass(frozen=True, kw_only=True)
class SparseOptions(DecoderSizes):
    """Options of an index beside latent attention: small heads that score all keys for a query.

    Its queries are made of the latent of queries, its one key of the residual stream;
    ``rotary_dim`` elements of each are rotated.
    """

    # How many keys a query sees at most, its own not always included; None where it sees all, and
    # the next options mean nothing.
    index_topk: int | None = None
    index_heads: int | None = None  # heads of queries of an index
    index_dim: int | None = None  # width of its heads and of its key
    # Which layers have an index; all when None. Others see what the last one before them chose.
    index_layers: tuple[bool, ...] | None = None

    def has_index(self, layer: int) -> bool:
        """Return whether a layer has an index of its own."""
        return self.index_topk is not None and chosen(self.index_layers, layer)

    def index_source(self, layer: int) -> int | None:
        """Return the layer whose choice a layer takes over; None where it takes over none."""
        if self.index_topk is None or self.has_index(layer):
            return None
        return next((n for n in reversed(range(layer)) if self.has_index(n)), None)

    def shares_index(self, layer: int) -> bool:
        """Return whether a layer takes over the choice of another one, or is such another one."""
        is_last = layer + 1 == self.n_layers
        next_shares = not is_last and self.index_source(layer + 1) is not None
        return self.index_source(layer) is not None or next_shares
