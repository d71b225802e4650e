"""Codecs of the layers that choose keys by an index of their own, and not another layer's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxtool.recipe.codec_type import NUMBER, Codec, Raws, Unspellable
from maxtool.recipe.expressions import Undefined, Values
from maxtool.recipe.keys import short
from maxtool.recipe.layer_codecs import Flags
from maxtool.recipe.listed_layers import by_kind

INDEXED = "indexed_attention"
TYPES = {"full": True, "shared": False}
LETTERS = {"F": True, "S": False}
# llama.cpp's for files that do not say it: GLM 5.2 is told by its context, and has an index in the
# first layers and in every so many behind them.
LONG, FIRST, EVERY = 1 << 20, 2, 4


def _check_kinds(listed: object) -> None:
    """Refuse layers of another kind: only a cache of this one keeps what an index needs."""
    if listed is not None and {*by_kind(listed, {INDEXED: True})} != {True}:
        raise Undefined(f"layers are {short(listed)}: {INDEXED!r} alone is supported")


def _read_all(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    _check_kinds(raws[0])
    return (True,) * values["n_layers"]


def _write_all(flags: Flags, _values: Values) -> Raws:
    if not all(flags):
        raise Unspellable
    return ([INDEXED for _ in flags],)


def _read_types(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read a list, or a letter for each layer, or of every how many the first has an index.

    What a list or a text has for layers that there are not says nothing.
    """
    kinds, types, pattern, every, first = raws
    _check_kinds(kinds)
    layers = values["n_layers"]
    if types is not None:
        return by_kind(types, TYPES)[:layers]
    if isinstance(pattern, str):
        return by_kind([*pattern], LETTERS)[:layers]
    if pattern is not None:
        return by_kind(pattern, TYPES)[:layers]
    every, first = 1 if every is None else every, 2 if first is None else first
    if type(every) is not int or type(first) is not int:
        raise Undefined(f"an index in one of {short(every)} layers from {short(first)} on")
    return tuple(max(layer - first + 1, 0) % max(every, 1) == 0 for layer in range(layers))


def _read_flags(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read a list of flags of layers, or where there is none what llama.cpp takes for granted."""
    (listed,) = raws
    layers = range(values["n_layers"])
    if isinstance(listed, list | tuple):
        return listed[: len(layers)]
    if listed is not None:
        return listed
    long = values["context_length"] >= LONG
    return tuple(not long or n < FIRST or (n - FIRST) % EVERY == 0 for n in layers)


def _write_types(flags: Flags, _values: Values) -> Raws:
    named = [name for flag in flags for name, own in TYPES.items() if own == flag]
    return None, named, None, None, None


INDEX_CODECS: Mapping[str, Codec] = {
    "indexed_layers": Codec(_read_all, _write_all, ("flags",)),
    "indexed_or_shared": Codec(_read_types, _write_types, ("flags",), ("any",) * 5),
    "indexed_by_context": Codec(
        read=_read_flags,
        write=lambda flags, _: ([*flags],),
        types=("flags",),
        needs={"context_length": NUMBER},
    ),
}
