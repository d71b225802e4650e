"""The decoder of a configuration: one that writes texts, makes vectors of them or scores them."""

from __future__ import annotations

from collections.abc import Mapping

from maxtool.architectures.cache_layout import CacheLayout
from maxtool.architectures.config import typed
from maxtool.architectures.decoder import CPU_FORM, Decoder
from maxtool.architectures.decoder_checks import problems
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.text_embedder import TextEmbedder
from maxtool.architectures.text_scorer import TextScorer
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError


def build(
    config: Mapping[str, object],
    dtype: DType = DType.float32,
    context: int | None = None,
    form: CacheLayout = CPU_FORM,
    draws: bool = False,
) -> Decoder:
    """A decoder with its weights declared and not bound."""
    options = typed(DecoderConfig, config, problems)
    if options.source_positions is not None:
        raise ConfigurationError("source_positions is for decoders behind an encoder")
    if context is not None and not 1 <= context <= options.max_context:
        raise ConfigurationError(
            f"a context of {context} positions", hint=f"it is from 1 to {options.max_context}"
        )
    if options.scored_by is not None:
        return TextScorer(options, dtype, context)
    if options.makes_vectors:
        return TextEmbedder(options, dtype, context)
    return Decoder(options, dtype, context, form, draws)
