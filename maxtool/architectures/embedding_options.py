"""Options of decoders that make vectors of texts in the place of further tokens."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.decoder_sizes import DecoderSizes


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions(DecoderSizes):
    """Ways from the vectors of tokens to that of a text, as sentence-transformers has them."""

    # How ``embed`` makes one vector of all tokens, ``last``, ``mean``, ``cls`` or ``max``; None for
    # a decoder that writes texts, which has a head.
    pooling: str | None = None
    normalize: bool = False  # whether ``embed`` scales that vector to length 1
    # Positions that texts are cut to, where they are fewer than ``context_length``.
    max_length: int | None = None
    # The name of the prompt, of those that a checkpoint has, that is put before each text.
    default_prompt: str | None = None
