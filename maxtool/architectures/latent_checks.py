"""Checks of a decoder's options of latent attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from maxtool.architectures.decoder_config import DecoderConfig

Rule: TypeAlias = Callable[[DecoderConfig], Iterator[str]]

# Options that heads of latents have no place for, with the values that ask for nothing.
WITHOUT: dict[str, object] = {
    "qk_norm": "none",
    "qkv_clip": None,
    "attention_sinks": False,
    "attention_gate": False,
    "sub_norms": False,
    "key_scale": 1.0,
    "value_scale": 1.0,
}


def _latents(config: DecoderConfig) -> Iterator[str]:
    if config.latent_size is None:
        return
    if config.n_kv_heads != config.n_heads:
        heads = f"n_kv_heads {config.n_kv_heads} and n_heads {config.n_heads}"
        yield f"{heads} with latent_size: each head of queries makes keys of its own"
    if config.position not in ("rope", "none"):
        yield f"position {config.position!r} with latent_size"
    if config.plain_dim is None:
        yield "latent_size needs plain_dim"
    elif config.plain_dim + config.rotated != config.head_dim:
        parts = f"plain_dim {config.plain_dim} and rotary_dim {config.rotated}"
        yield f"{parts} do not add up to head_dim {config.head_dim}"
    for name, value in WITHOUT.items():
        if (asked := getattr(config, name)) != value:
            yield f"{name} {asked!r} with latent_size"


# Options that an index has no place for, likewise.
WITHOUT_INDEX: dict[str, object] = {
    "sliding_window": None,
    "attention_softcap": None,
    "attention_layers": None,
    "mixer_beside": False,
    "streams": None,
}


def _index(config: DecoderConfig) -> Iterator[str]:
    if config.index_topk is None:
        return
    if config.query_latent_size is None:
        yield "index_topk needs query_latent_size, of which its queries are made"
    if (config.index_dim or 0) < config.rotated:
        parts = f"rotary_dim {config.rotated} and index_dim {config.index_dim}"
        yield f"{parts}: more is rotated than there is"
    if config.index_layers is not None and not all(config.index_layers[:1]):
        yield "index_layers: the first layer needs an index of its own"
    for name, value in WITHOUT_INDEX.items():
        if (asked := getattr(config, name)) != value:
            yield f"{name} {asked!r} with index_topk"


RULES: tuple[Rule, ...] = (_latents, _index)
