"""Codecs of T5, which says its activation and its gate in one word: ``gated-gelu``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxtool.recipe.activation_codecs import OLDER, named, spelled
from maxtool.recipe.codec_type import Codec, Raws, Unspellable
from maxtool.recipe.expressions import Undefined, Values
from maxtool.recipe.keys import short

GATED, PLAIN = "gated", "plain"
SPELLED = spelled(OLDER)


def _parts(said: Any) -> list[str]:  # noqa: ANN401
    """The word's parts: an activation, perhaps behind what says that there is a gate."""
    parts = said.split("-") if isinstance(said, str) else []
    if not parts or len(parts) > 2 or (len(parts) == 2 and parts[0] != GATED):
        raise Undefined(f"{short(said)} is not an activation, nor {GATED}- and one")
    return parts


def _read_activation(raws: Raws, _: Values) -> Any:  # noqa: ANN401
    own, said = raws
    parts = _parts(said)
    if own is not None:
        return named(own)
    return named("gelu_new" if said == f"{GATED}-gelu" else parts[-1])


def _write_activation(value: str, values: Values) -> Raws:
    if value not in SPELLED:
        raise Unspellable
    is_other = (value, values["mlp"]) == ("gelu", GATED)  # the word for it means another one
    return SPELLED[value] if is_other else None, _word(value, values["mlp"])


def _read_gate(raws: Raws, _: Values) -> Any:  # noqa: ANN401
    own, said = raws
    has_gate = _parts(said)[0] == GATED if own is None else own
    return GATED if has_gate else PLAIN


def _write_gate(value: str, values: Values) -> Raws:
    if value not in (GATED, PLAIN) or values["hidden_act"] not in SPELLED:
        raise Unspellable
    return None, _word(values["hidden_act"], value)


def _word(activation: str, mlp: str) -> str:
    """The word for an activation and a gate, if there is one."""
    if mlp != GATED:
        return SPELLED[activation]
    return f"{GATED}-{'gelu' if activation == 'gelu_tanh' else SPELLED[activation]}"


def _read_scale(raws: Raws, _: Values) -> Any:  # noqa: ANN401
    own, tied = raws
    return tied is not False if own is None else own


T5_CODECS: Mapping[str, Codec] = {
    "t5_activation": Codec(
        read=_read_activation,
        write=_write_activation,
        types=("str",),
        keys=("any", "str"),
        writes_with=("mlp",),
    ),
    "t5_gate": Codec(
        read=_read_gate,
        write=_write_gate,
        types=("str",),
        keys=("bool", "str"),
        writes_with=("hidden_act",),
    ),
    "scaled_heads": Codec(
        read=_read_scale,
        write=lambda value, _: (None, value),
        types=("bool",),
        keys=("bool", "any"),
    ),
}
