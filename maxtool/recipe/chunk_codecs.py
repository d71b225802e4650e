"""Codecs of Llama 4: which layers rotate, see chunks and have experts, and what others have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxtool.recipe.codec_type import FLAGS_OR_NULL, NUMBER, Codec, Raws, Unspellable
from maxtool.recipe.expressions import Undefined, Values, same
from maxtool.recipe.keys import short
from maxtool.recipe.layer_codecs import MAX_LAYERS, Flags, period
from maxtool.recipe.listed_layers import by_kind, numbered

# What llama.cpp takes for granted: how many positions a chunk has, that each fourth layer has none
# and does not rotate, and that models of so many experts have no norms of queries and keys.
CHUNK, PERIOD, UNNORMED = 8192, 4, 128
KINDS = {"chunked_attention": True, "full_attention": False}


def _all_set(layers: int) -> Flags:
    return (True,) * layers


def _read_kinds(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the kind of each layer, or where there is no list the layers that rotate."""
    (listed,) = raws
    if listed is None:
        return values["rope_layers"] or _all_set(values["n_layers"])
    if not isinstance(listed, list | tuple):
        return listed
    return by_kind(listed, KINDS)


def _write_kinds(flags: Flags, _values: Values) -> Raws:
    return ([name for flag in flags for name, own in KINDS.items() if own == flag],)


def _has_chunks(raws: Raws) -> bool:
    """Return whether a window says that there are chunks: 0 says that there are none."""
    (window,) = raws
    if window is not None and not any(same(window, known) for known in (0, CHUNK)):
        raise Undefined(f"a window of {short(window)}: chunks of {CHUNK}, or 0, are supported")
    return not same(window, 0)


def _read_chunks(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    layers = values["n_layers"]
    return period(layers, PERIOD) if _has_chunks(raws) else (False,) * layers


def _write_chunks(flags: Flags, values: Values) -> Raws:
    if not any(flags):
        return (0,)
    if flags != period(values["n_layers"], PERIOD):
        raise Unspellable
    return (None,)


def _read_rotated(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    layers = values["n_layers"]
    return period(layers, PERIOD) if _has_chunks(raws) else _all_set(layers)


def _write_rotated(flags: Flags, values: Values) -> Raws:
    chunked = values["sliding_layers"] is None or any(values["sliding_layers"])
    said = (None,) if chunked else (0,)
    if flags != _read_rotated(said, values):
        raise Unspellable
    return said


def _read_every(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read n: only every n-th layer; for 0, and where there are fewer, none."""
    every = raws[0]
    if type(every) is not int or not 0 <= every <= MAX_LAYERS:
        return every
    return tuple(every > 0 and (layer + 1) % every == 0 for layer in range(values["n_layers"]))


def _write_every(flags: Flags, values: Values) -> Raws:
    every = flags.index(True) + 1 if True in flags else 0
    if _read_every([every], values) != flags:
        raise Unspellable
    return (every,)


def _read_numbered(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the numbers of layers, or where there is no list n."""
    numbers, every = raws
    if numbers is None:
        return _read_every([every], values)
    own = numbered(numbers)
    return tuple(layer in own for layer in range(values["n_layers"]))


def _write_numbered(flags: Flags, values: Values) -> Raws:
    """Write both, as far as n says the same: llama.cpp's converter looks at it alone."""
    numbers = [layer for layer, flag in enumerate(flags) if flag]
    try:
        return numbers, *_write_every(flags, values)
    except Unspellable:
        return numbers, None


def _read_switched(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """Read a value, or null where a switch, which may be a number, is off."""
    switch, value = raws
    if type(switch) not in (bool, int, type(None)):
        raise Undefined(f"{short(switch)} is no switch")
    return value if switch or switch is None else None


def _usual_norm(values: Values) -> str:
    return "none" if same(values["n_experts"], UNNORMED) else "plain"


def _write_norm(value: str, values: Values) -> Raws:
    if value != _usual_norm(values):
        raise Unspellable
    return ()


CHUNK_CODECS: Mapping[str, Codec] = {
    "chunked_or_rotated": Codec(
        _read_kinds, _write_kinds, ("flags",), needs={"rope_layers": FLAGS_OR_NULL}
    ),
    "llama4_chunks": Codec(_read_chunks, _write_chunks, ("flags",)),
    "llama4_rotated": Codec(
        _read_rotated, _write_rotated, ("flags",), writes_with=("sliding_layers",)
    ),
    "experts_every": Codec(_read_every, _write_every, ("flags",)),
    "experts_numbered_or_every": Codec(
        _read_numbered, _write_numbered, ("flags",), keys=("any", "any")
    ),
    "unless_switched_off": Codec(
        read=_read_switched,
        write=lambda value, _: (False, None) if value is None else (True, value),
        types=("int", "float"),
        keys=("any", "any"),
    ),
    "llama4_qk_norm": Codec(
        read=lambda _raws, values: _usual_norm(values),
        write=_write_norm,
        types=("str",),
        keys=(),
        needs={"n_experts": NUMBER},
    ),
}
