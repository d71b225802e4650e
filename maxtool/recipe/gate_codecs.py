"""Codecs of the gates of attention: one for each head, or for each element."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxtool.recipe.codec_type import NUMBER, SIZES_OR_NULL, Codec, Raws
from maxtool.recipe.expressions import Undefined, Values
from maxtool.recipe.keys import short

# What a key says, and whether there is a gate for each head.
WORDS: tuple[tuple[object, bool], ...] = ((True, True), ("per-head", True), ("per-element", False))


def _read_words(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """Read a word; a list for all layers, which transformers does not read, must say the same."""
    listed, word = raws
    alike = (flag for known, flag in WORDS if type(known) is type(word) and known == word)
    by_head = next(alike, None)
    if by_head is None:
        known = ", ".join(short(each) for each, _ in WORDS)
        raise Undefined(f"{short(word)} is not supported ({known} are)")
    wanted = "per_head" if by_head else "per_element"
    told = listed if isinstance(listed, list | tuple) else [] if listed is None else [listed]
    for each in told:
        if str(each).replace("-", "_") != wanted:
            raise Undefined(f"{short(each)} of a layer and {short(word)} of all disagree")
    return by_head


def _first_heads(values: Values) -> int:
    heads: int = (values["layer_heads"] or (values["n_heads"],))[0]
    return heads


def _read_rows(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read how many gates the first layer has."""
    (rows,) = raws
    heads = _first_heads(values)
    if rows in (None, heads, heads * values["head_dim"]):
        return rows in (None, heads)
    raise Undefined(f"{short(rows)} gates of {heads} heads with {values['head_dim']} elements each")


GATE_CODECS: Mapping[str, Codec] = {
    "gates_by_word": Codec(
        _read_words,
        lambda value, _: (None, True if value else "per-element"),
        ("bool",),
        ("any", "any"),
    ),
    "gates_by_rows": Codec(
        _read_rows,
        lambda value, values: (_first_heads(values) * (1 if value else values["head_dim"]),),
        ("bool",),
        needs={"n_heads": NUMBER, "head_dim": NUMBER, "layer_heads": SIZES_OR_NULL},
    ),
}
