"""Options of embeddings that each layer of a decoder has for itself."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.decoder_sizes import DecoderSizes


@dataclass(frozen=True, kw_only=True)
class LayerEmbeddingOptions(DecoderSizes):
    """Options of a vector that tokens have for each layer, and of what a layer gives."""

    # The width of a vector for each token in each layer, which passes a gate behind the MLP and is
    # added to ``x`` (Gemma 3n); None for no such vectors.
    layer_embed_size: int | None = None
    # How many tokens have such vectors, the first ones; others have those of token 0.
    layer_embed_rows: int | None = None
    # Whether what a layer gives is multiplied by a number of its own.
    layer_scale: bool = False
