"""Codecs of DeBERTa, which says in several keys what its vectors of distances are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxtool.recipe.codec_type import NUMBER, Codec, Raws, Unspellable
from maxtool.recipe.expressions import Undefined, Values
from maxtool.recipe.keys import short

TERMS = ("c2p", "p2c")
NORM, NONE = "layer_norm", "none"
# What transformers takes for no number.
UNSAID = -1


def _terms(said: Any) -> tuple[str, ...] | None:  # noqa: ANN401
    """The terms of a list, or of a text with bars, in our order; None for none."""
    named = said.lower().split("|") if isinstance(said, str) else said or []
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise Undefined(f"{short(said)} is not a list of terms")
    found = {name.strip() for name in named} - {"", NONE}
    if unknown := found - {*TERMS}:
        raise Undefined(f"{short(min(unknown))} is none of {', '.join(TERMS)}")
    return tuple(term for term in TERMS if term in found) or None


def _read_terms(raws: Raws, _: Values) -> Any:  # noqa: ANN401
    return _terms(raws[0])


def _write_terms(value: tuple[str, ...] | None, _: Values) -> Raws:
    if value is not None and value != _terms([*{*value} & {*TERMS}]):
        raise Unspellable
    return (None if value is None else [*reversed(value)],)  # as published models list them


def _read_limit(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """The limit where there are vectors, the context if none is said."""
    switch, said = raws
    limit = _read_above_zero([said], values)
    return (values["context_length"] if limit is None else limit) if switch else None


def _write_limit(value: int | None, values: Values) -> Raws:
    """The switch of vectors, and their limit, unsaid where it is the context."""
    return value is not None, UNSAID if value == values["context_length"] else value


def _read_above_zero(raws: Raws, _: Values) -> Any:  # noqa: ANN401
    return None if isinstance(raws[0], int) and raws[0] < 1 else raws[0]


def _read_norm(raws: Raws, _: Values) -> Any:  # noqa: ANN401
    return NORM in (kind.strip() for kind in (raws[0] or "").lower().split("|"))


DISTANCE_CODECS: Mapping[str, Codec] = {
    "terms_of_distances": Codec(
        read=_read_terms,
        write=_write_terms,
        types=("texts",),
    ),
    "limit_of_distances": Codec(
        read=_read_limit,
        write=_write_limit,
        types=("int",),
        keys=("bool", "any"),
        needs={"context_length": NUMBER},
    ),
    "above_zero_or_null": Codec(
        read=_read_above_zero,
        write=lambda value, _: (UNSAID if value is None else value,),
        types=("int",),
    ),
    "norm_of_distances": Codec(
        read=_read_norm,
        write=lambda value, _: (NORM if value else NONE,),
        types=("bool",),
        keys=("str",),
    ),
}
