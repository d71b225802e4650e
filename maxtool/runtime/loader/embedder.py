"""Texts as vectors, in batches."""

from __future__ import annotations

from .specs import EMBED
from .text_rows import Text, TextRows

__all__ = ["Embedder", "Text"]


class Embedder(TextRows):
    """Vectors of texts, with the model's own pooling."""

    entry = EMBED
    output = "embeddings"
