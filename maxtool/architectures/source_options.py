"""Options of a decoder that reads on from what an encoder gives."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.decoder_sizes import DecoderSizes


@dataclass(frozen=True, kw_only=True)
class SourceOptions(DecoderSizes):
    """Options of attention to the output of an encoder, the source."""

    # Positions of the source, to which each layer attends, too; None without an encoder.
    source_positions: int | None = None
    source_varies: bool = False  # whether a source may have fewer positions than that
