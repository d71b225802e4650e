"""Check that a decoder can be split over several devices, each with its share of the heads."""

from __future__ import annotations

from collections.abc import Iterator

from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.errors import ConfigurationError


def check_split(config: DecoderConfig, count: int) -> None:
    """Refuse what makes no equal parts.

    Raises:
        ConfigurationError: Listing everything that does not.
    """
    if listed := list(_problems(config, count)):
        raise ConfigurationError(f"the model cannot be split over {count} devices", problems=listed)


def _problems(config: DecoderConfig, count: int) -> Iterator[str]:
    heads = ("n_heads", "n_kv_heads")[: 1 + (config.n_kv_heads > 1)]
    for name in (*heads, *_inner(config)):
        if (size := getattr(config, name)) % count:
            yield f"{name} is {size}, which makes no {count} equal parts"
    if config.qk_norm == "full" and count > 1:
        yield "qk_norm is 'full': the norm of queries and keys is over all heads"


def _inner(config: DecoderConfig) -> Iterator[str]:
    """Yield the options that set the width of the MLPs, of experts and of layers without them."""
    layers = [config.has_experts(index) for index in range(config.n_layers)]
    if any(layers) and config.expert_size is not None:
        yield "expert_size"
    if not all(layers) or config.expert_size is None:
        yield "intermediate_size"
