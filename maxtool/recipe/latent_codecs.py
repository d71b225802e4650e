"""Codecs of latent attention, which GGUF describes as it is computed: one key for all heads.

And of the multipliers of MiniCPM 3, which has such attention.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from maxtool.recipe.codec_type import NUMBER, NUMBER_OR_NULL, Codec, Raws, Unspellable
from maxtool.recipe.expressions import Undefined, Values, is_number, same
from maxtool.recipe.keys import short


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


def _read_key_size(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the width of the latent beside that of keys; nothing looks at the other one."""
    size, keys, _ = raws
    return _read_size([size, keys, None], values)


def _write_key_size(value: int, values: Values) -> Raws:
    """Write what published configurations say of a head of values: the width shared out."""
    return value, value + values["rotary_dim"], values["hidden_size"] // values["n_heads"]


SHARED = {1: True, 0: False}


def _read_shared(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """Read the layers with a key that all heads share."""
    (counts,) = raws
    if not isinstance(counts, list | tuple):
        return None if counts == 1 else counts
    if any(count not in SHARED for count in counts):
        raise Undefined(f"layers have {short(counts)} heads of keys: 1 or none is supported")
    return [SHARED[count] for count in counts]


def _read_plain(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    return raws[0] - values["rotary_dim"] if type(raws[0]) is int else raws[0]


def _write_alike(value: float | None, values: Values) -> Raws:
    if not same(value, values["rope_mscale_all_dim"]):
        raise Unspellable
    return ()


def _over(root: Callable[[Values], float]) -> Callable[[Raws, Values], Any]:
    """Read how many times a number of the model; null is 1."""

    def read(raws: Raws, values: Values) -> Any:  # noqa: ANN401
        number = raws[0]
        return 1.0 if number is None else number / root(values) if is_number(number) else number

    return read


def _depth(values: Values) -> float:
    return math.sqrt(values["n_layers"])


def _write_depth(value: float | None, values: Values) -> Raws:
    if value is None:
        raise Unspellable
    return (float(f"{value * _depth(values):.15g}"),)


def _write_base(value: float | None, values: Values) -> Raws:
    """Write a width, which is a whole number."""
    if value is None:
        raise Unspellable
    base = round(value * values["hidden_size"])
    if not base or not same(base / values["hidden_size"], value):
        raise Unspellable
    return (base,)


LATENT_CODECS: Mapping[str, Codec] = {
    "latent_size": Codec(
        read=_read_size,
        write=lambda value, values: (value, *_widths(value, values)),
        types=("int",),
        keys=("int", "any", "any"),
        needs={"rotary_dim": NUMBER},
    ),
    "latent_size_of_keys": Codec(
        read=_read_key_size,
        write=_write_key_size,
        types=("int",),
        keys=("int", "any", "any"),
        needs={"rotary_dim": NUMBER, "hidden_size": NUMBER, "n_heads": NUMBER},
    ),
    "layers_with_shared_head": Codec(
        read=_read_shared,
        write=lambda flags, _: ([int(flag) for flag in flags],),
        types=("flags",),
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
    "over_hidden_size": Codec(
        read=_over(lambda values: values["hidden_size"]),
        write=_write_base,
        types=("float",),
        keys=("float",),
        needs={"hidden_size": NUMBER},
    ),
    "over_root_of_layers": Codec(
        read=_over(_depth),
        write=_write_depth,
        types=("float",),
        keys=("float",),
        needs={"n_layers": NUMBER},
    ),
    "without_rotated": Codec(
        read=_read_plain,
        write=lambda value, values: (value + values["rotary_dim"],),
        types=("int",),
        keys=("int",),
        needs={"rotary_dim": NUMBER},
    ),
}
