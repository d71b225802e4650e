"""The sizes that every decoder has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DecoderSizes:
    """Sizes of a decoder. Widths are in elements."""

    vocab_size: int  # rows of the embedding and of the head
    hidden_size: int  # width of the residual stream
    intermediate_size: int = 0  # width inside the MLP; 0 where no layer has one
    n_layers: int
    # Of attention; 0 where no layer has it.
    n_heads: int = 0  # query heads
    n_kv_heads: int = 0  # key/value heads, of which ``n_heads`` is a multiple
    head_dim: int = 0  # width of a head
    context_length: int  # positions the model was trained for
    norm_eps: float  # added to the mean of squares, or to the variance, in each norm


def chosen(layers: tuple[bool, ...] | None, layer: int) -> bool:
    """Return whether a layer is one of those that flags name; all are where there are none."""
    return layers is None or layers[layer]
