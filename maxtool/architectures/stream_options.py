"""Options of several residual streams, and of what stands beside attention in each layer."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.decoder_sizes import DecoderSizes


@dataclass(frozen=True, kw_only=True)
class StreamOptions(DecoderSizes):
    """Options of alternating updates, and of a residual that is learned (Gemma 3n)."""

    # How many residual streams there are: each layer predicts all of them, computes one, and
    # corrects all by how far off that prediction was (AltUp, arXiv:2301.13310). None for ``x``
    # alone.
    streams: int | None = None
    active_stream: int = 0  # the number of the one that layers compute, from 0 on
    # Whether that one is multiplied by a weight before it opens the gate of a token's vectors.
    stream_scale: bool = False
    # The rank of a matrix whose product with what attention reads is normalised and added to ``x``
    # beside that and what attention gives, all over the root of 2 (LAuReL, arXiv:2411.07501). None
    # for no such matrix.
    laurel_rank: int | None = None
