"""Codecs of the sizes of states: their heads, widths and ranks, and where their norms stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxtool.recipe.codec_type import NUMBER, Codec, Raws, Unspellable
from maxtool.recipe.expressions import Undefined, Values
from maxtool.recipe.field_codecs import listed


def _read_state_width(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the width of a head's values from that of all heads."""
    (inner,) = raws
    if type(inner) is not int:
        return inner
    width, rest = divmod(inner, values["state_heads"])
    if rest:
        raise Undefined(f"{inner} is no multiple of {values['state_heads']} heads")
    return width


def _read_head_width(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read a width, or where it is to follow from others that of all heads over their number."""
    width, expand = raws
    if width not in (None, "auto"):
        return width
    return _read_state_width([(2 if expand is None else expand) * values["hidden_size"]], values)


def _read_width_of_states(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read a width, or where it is to follow from others that of all heads over their number."""
    width, expand, inner = raws
    if inner is None:
        return _read_head_width([width, expand], values)
    return width if width not in (None, "auto") else _read_state_width([inner], values)


def _read_inner_width(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read a width, or where there is none how many times ``hidden_size`` it is."""
    width, expand = raws
    if width is not None:
        return width
    return (2 if expand is None else expand) * values["hidden_size"]


def _write_inner_width(value: int, values: Values) -> Raws:
    expand, rest = divmod(value, values["hidden_size"])
    return value, None if rest else expand


def _read_step_rank(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read a number, or where it is to follow from others a sixteenth of ``hidden_size``."""
    (rank,) = raws
    return -(-values["hidden_size"] // 16) if rank in (None, "auto") else rank


# Whether there is a norm, and whether it is before the gate, which is so where it is not said.
STATE_NORMS: Mapping[Any, Raws] = {
    "none": (False, None),
    "before": (True, True),
    "gated": (True, False),
}


def _read_state_norm(raws: Raws, _values: Values) -> str:
    is_there, is_before = raws
    if not is_there:
        return "none"
    return "gated" if is_before is False else "before"


def _write_head_width(value: int, values: Values) -> Raws:
    expand, rest = divmod(value * values["state_heads"], values["hidden_size"])
    if rest:
        raise Unspellable
    return value, expand


def _write_square_state(value: int, values: Values) -> Raws:
    """Write the width of all heads; llama.cpp has one width for keys and values."""
    if value != values["state_key_dim"]:
        raise Unspellable
    return (value * values["state_heads"],)


STATE_CODECS: Mapping[str, Codec] = {
    "head_width": Codec(
        read=_read_head_width,
        write=_write_head_width,
        types=("int",),
        keys=("any", "int"),
        needs={"state_heads": NUMBER, "hidden_size": NUMBER},
    ),
    "width_of_states": Codec(
        read=_read_width_of_states,
        write=lambda value, values: (value, None, value * values["state_heads"]),
        types=("int",),
        keys=("any", "int", "int"),
        needs={"state_heads": NUMBER, "hidden_size": NUMBER},
    ),
    "state_norm": Codec(_read_state_norm, listed(STATE_NORMS), ("str",), ("bool", "bool")),
    "width_of_heads": Codec(
        read=_read_state_width,
        write=lambda value, values: (value * values["state_heads"],),
        types=("int",),
        needs={"state_heads": NUMBER},
    ),
    "inner_width": Codec(
        read=_read_inner_width,
        write=_write_inner_width,
        types=("int",),
        keys=("any", "int"),
        needs={"hidden_size": NUMBER},
    ),
    "step_rank": Codec(
        read=_read_step_rank,
        write=lambda value, _: (value,),
        types=("int",),
        needs={"hidden_size": NUMBER},
    ),
    "square_state": Codec(
        read=_read_state_width,
        write=_write_square_state,
        types=("int",),
        needs={"state_heads": NUMBER, "state_key_dim": NUMBER},
    ),
}
