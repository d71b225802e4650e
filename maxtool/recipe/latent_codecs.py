"""Codecs of latent attention, which GGUF describes as it is computed: one key for all heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxtool.recipe.codec_type import NUMBER, NUMBER_OR_NULL, Codec, Raws, Unspellable
from maxtool.recipe.expressions import Undefined, Values, same


def _read_size(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the width of the latent, which those of keys and values in a cache follow from."""
    size, *widths = raws
    if type(size) is not int:
        return size
    for width, expected in zip(widths, _widths(size, values), strict=True):
        if width is not None and not same(width, expected):
            makes = f"where a latent of {size} makes {expected}"
            raise Undefined(f"a cache of {width} elements, {makes}")
    return size


def _widths(size: int, values: Values) -> tuple[int, int]:
    """Elements of a key in a cache, the rotated ones behind the latent, and of a value."""
    return size + values["rotary_dim"], size


def _read_heads(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read as many heads as of queries, each of which makes keys of its own of the one that is."""
    return values["n_heads"] if raws[0] == 1 else raws[0]


def _write_heads(value: int, values: Values) -> Raws:
    if value != values["n_heads"]:
        raise Unspellable
    return (1,)


def _read_plain(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    return raws[0] - values["rotary_dim"] if type(raws[0]) is int else raws[0]


def _write_alike(value: float | None, values: Values) -> Raws:
    if not same(value, values["rope_mscale_all_dim"]):
        raise Unspellable
    return ()


LATENT_CODECS: Mapping[str, Codec] = {
    "latent_size": Codec(
        read=_read_size,
        write=lambda value, values: (value, *_widths(value, values)),
        types=("int",),
        keys=("int", "any", "any"),
        needs={"rotary_dim": NUMBER},
    ),
    "alike_mscale": Codec(
        read=lambda _raws, values: values["rope_mscale_all_dim"],
        write=_write_alike,
        types=("float",),
        keys=(),
        needs={"rope_mscale_all_dim": NUMBER_OR_NULL},
    ),
    "one_shared_head": Codec(
        read=_read_heads, write=_write_heads, types=("int",), needs={"n_heads": NUMBER}
    ),
    "without_rotated": Codec(
        read=_read_plain,
        write=lambda value, values: (value + values["rotary_dim"],),
        types=("int",),
        keys=("int",),
        needs={"rotary_dim": NUMBER},
    ),
}
