"""Checks of a decoder's options of several residual streams, and of learned residuals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from maxtool.architectures.decoder_config import DecoderConfig

Rule: TypeAlias = Callable[[DecoderConfig], Iterator[str]]

# Blocks of two parts, one after the other, with a norm before the first.
FIRST_NORMED = ("pre", "sandwich")
# What layers that compute one of several streams cannot have, by the values that are fine.
UNSTREAMED: dict[str, object] = {"layer_scale": False, "source_positions": None}
# Options that say something of streams, by the values that say nothing.
OF_STREAMS: dict[str, object] = {"active_stream": 0, "stream_scale": False}


def _streams(config: DecoderConfig) -> Iterator[str]:
    count = config.streams
    if count is None:
        for name, nothing in OF_STREAMS.items():
            if getattr(config, name) != nothing:
                yield f"{name} {getattr(config, name)} needs streams"
        return
    if config.active_stream >= count:
        yield f"active_stream {config.active_stream} of {count} streams, which are counted from 0"
    if config.stream_scale and config.layer_embed_size is None:
        yield "stream_scale needs layer_embed_size, of the gate that it is for"
    for name, fine in UNSTREAMED.items():
        if getattr(config, name) != fine:
            yield f"{name} with streams"


def _blocks(config: DecoderConfig) -> Iterator[str]:
    for name in ("streams", "laurel_rank"):
        if getattr(config, name) is not None and config.block not in FIRST_NORMED:
            known = " or ".join(map(repr, FIRST_NORMED))
            yield f"{name} with block {config.block!r}: it goes with {known} alone"


RULES: tuple[Rule, ...] = (_streams, _blocks)
