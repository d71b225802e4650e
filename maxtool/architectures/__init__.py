"""The architectures: typed blocks made of ``nn``. A recipe names the one it configures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from maxtool.architectures import (
    built_decoder,
    convnext,
    dual_encoder,
    encoder,
    image_encoder,
    image_text,
    resnet,
    seq2seq,
    speech,
)
from maxtool.architectures.cache_layout import CacheLayout
from maxtool.architectures.decoder import CPU_FORM, Decoder
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.encoder_decoder import EncoderDecoder
from maxtool.architectures.entry import (
    Architecture,
    Caching,
    Entry,
    Indexed,
    Limit,
    Table,
    Turning,
    graph_of,
)
from maxtool.architectures.installed import installed_builder, installed_names
from maxtool.architectures.text_embedder import TextEmbedder
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError

# From a configuration, the element type of the matrices and a context to the module.
Builder: TypeAlias = Callable[[Mapping[str, object], DType, int | None], Architecture]

ARCHITECTURES: dict[str, Builder] = {
    "convnext": convnext.build,
    "decoder": built_decoder.build,
    "encoder": encoder.build,
    "image_encoder": image_encoder.build,
    "dual_encoder": dual_encoder.build,
    "image_text": image_text.build,
    "resnet": resnet.build,
    "seq2seq": seq2seq.build,
    "speech": speech.build,
}
# Of models of an encoder and a decoder, whose cache is the decoder's.
SOURCED: dict[Builder, Callable[..., Architecture]] = {
    each: each for each in (seq2seq.build, speech.build)
}


def build(
    architecture: str,
    config: Mapping[str, object],
    dtype: DType = DType.float32,
    context: int | None = None,
    form: CacheLayout = CPU_FORM,
    draws: bool = False,
) -> Architecture:
    """The module of an architecture, its weights declared and not bound.

    Args:
        architecture: A name in the table, or one that an installed package brings.
        config: Its configuration, field by field.
        dtype: The element type of the matrices.
        context: Positions it is built for; when absent, all that the configuration allows.
        form: How a decoder's cache lies; architectures of installed packages see to their own.
        draws: Whether a decoder draws tokens itself.

    Raises:
        ConfigurationError: If there is no such architecture, or listing all that is wrong with the
            configuration.
    """
    builder = ARCHITECTURES.get(architecture) or installed_builder(architecture)
    if builder is None:
        known = ", ".join(dict.fromkeys([*ARCHITECTURES, *installed_names()]))
        raise ConfigurationError(f"no architecture {architecture!r}", hint=f"there are: {known}")
    if builder is built_decoder.build or builder is image_text.build:
        return builder(config, dtype, context, form, draws)
    if builder in SOURCED:
        return SOURCED[builder](config, dtype, context, form)
    return builder(config, dtype, context)


__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "Builder",
    "CacheLayout",
    "Caching",
    "Decoder",
    "DecoderConfig",
    "EncoderDecoder",
    "Entry",
    "Indexed",
    "Limit",
    "Table",
    "TextEmbedder",
    "Turning",
    "build",
    "graph_of",
]
