"""Codecs of MiMo V2 Flash, whose published keys say again what transformers reads elsewhere.

Transformers reads keys of its own, and has defaults where these are missing. What a key of the
published configuration says has to be the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from maxtool.recipe.codec_type import FLAGS_OR_NULL, NUMBER, Codec, Raws, Unspellable
from maxtool.recipe.expert_codecs import EXPERT_CODECS
from maxtool.recipe.expressions import Undefined, Values, same
from maxtool.recipe.field_codecs import FIELD_CODECS
from maxtool.recipe.keys import short
from maxtool.recipe.layer_codecs import LAYER_CODECS, Flags

# What transformers takes where no key says it.
USUAL_WINDOW = 129


def _confirmed(codec: Codec, again: Codec | None = None) -> Codec:
    """The value that a codec reads from the keys but the first, which says the same, if there.

    ``again`` reads that one; the same codec where it is None.
    """
    other = again or codec

    def read(raws: Raws, values: Values) -> Any:  # noqa: ANN401
        said, *others = raws
        value = codec.read(others, values)
        if said is None or value is None:
            return value
        if not same(other.read([said], values), _plain(value)):
            what = f"{short(said)}, which transformers does not read, and {short(value)} disagree"
            raise Undefined(what)
        return value

    return Codec(
        read,
        lambda value, values: (None, *codec.write(value, values)),
        codec.types,
        ("any", *("any" for _ in codec.keys)),
        codec.needs,
        codec.writes_with,
    )


def _plain(value: Any) -> Any:  # noqa: ANN401
    """A value as another codec gives it: a list as a tuple."""
    return tuple(value) if isinstance(value, list) else value


# --- windows -------------------------------------------------------------------------------------


def _read_windows(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read a list of kinds, or where there is none all layers but the first and every sixth."""
    if raws[0] is None:
        return tuple(layer > 0 and (layer + 1) % 6 != 0 for layer in range(values["n_layers"]))
    return _LISTED.read([*raws, None], values)


def _read_width(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """Read how many keys a query sees: its own, and as many before it as the first key says."""
    before, window = raws
    if before is None:
        return USUAL_WINDOW if window is None else window
    if type(before) is not int or before < 0:
        raise Undefined(f"{short(before)} keys before a query's own")
    if window not in (None, before, before + 1):
        raise Undefined(f"{before} keys before a query's own, and {short(window)} disagree")
    return before + 1


# --- heads of keys -------------------------------------------------------------------------------


def _windows(values: Values) -> Flags:
    flags: Flags | None = values["sliding_layers"]
    return (True,) * values["n_layers"] if flags is None else flags


def _heads(raws: Raws, values: Values, *, is_local: bool) -> Any:  # noqa: ANN401
    """Read how many layers of one kind have, from a list of all; null where there are none."""
    listed = _cut(raws, values)
    if not isinstance(listed, Sequence):
        return listed
    flags = _windows(values)
    if len(listed) != len(flags):
        raise Undefined(f"{short(listed)} has not one number for each layer")
    own = [count for count, flag in zip(listed, flags, strict=True) if flag is is_local]
    if any(count != own[0] for count in own):
        raise Undefined(f"{short(listed)} are several numbers for layers of one kind")
    return own[0] if own else None


def _read_others(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read how many heads layers without a window have, or would have."""
    own = _heads(raws, values, is_local=False)
    if own is not None:
        return own
    local = _heads(raws, values, is_local=True)
    return local // 2 if type(local) is int and local % 2 == 0 else local


def _read_local(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read how many heads layers with a window have, or would have."""
    own = _heads(raws, values, is_local=True)
    return 2 * values["n_kv_heads"] if own is None else own


def _write_heads(values: Values, local: int, others: int) -> Raws:
    return [local if flag else others for flag in _windows(values)], None


def _write_twice(value: int, values: Values) -> Raws:
    if value != 2 * values["n_kv_heads"]:
        raise Unspellable
    return ()


# --- other numbers -------------------------------------------------------------------------------


def _cut(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """A list of all layers without the last of them, which predict further tokens."""
    listed, predicting = raws
    if not isinstance(listed, list | tuple) or type(predicting) is not int:
        return listed
    layers: int = values["n_layers"]
    return listed[:layers] if len(listed) == layers + predicting else listed


def _switches(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """Read a list of 0 and 1; anything else as it is."""
    (listed,) = raws
    fits = isinstance(listed, list) and all(each in (0, 1) for each in listed)
    return tuple(bool(each) for each in listed) if fits else listed


def _twice(_raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read that layers with a window have two heads of keys for each one of others."""
    return 2 * values["n_kv_heads"]


_SWITCHES = Codec(_switches, lambda flags, _: ([int(flag) for flag in flags],), ("flags",))
_PLAIN = Codec(lambda raws, _: raws[0], lambda value, _: (value,), ("int", "float"))
_LISTED = LAYER_CODECS["layer_types_or_period"]
_LAYERS = {"n_layers": NUMBER, "sliding_layers": FLAGS_OR_NULL}
_WINDOWS = Codec(_read_windows, lambda flags, values: _LISTED.write(flags, values)[:1], ("flags",))

MIMO_CODECS: Mapping[str, Codec] = {
    "confirmed": _confirmed(_PLAIN),
    "share_confirmed": _confirmed(FIELD_CODECS["share_of_head"]),
    "windows_confirmed": _confirmed(_WINDOWS, _SWITCHES),
    "experts_confirmed": _confirmed(EXPERT_CODECS["experts_listed_or_from"], _SWITCHES),
    "twice_confirmed": _confirmed(
        Codec(_twice, _write_twice, ("int",), (), {"n_kv_heads": NUMBER}), _PLAIN
    ),
    "one_more_than_before": Codec(
        _read_width, lambda value, _: (None, value), ("int",), ("any", "any")
    ),
    "switches_before_predicted": Codec(
        _cut,
        lambda flags, _: ([int(flag) for flag in flags], None),
        ("flags",),
        ("any", "any"),
    ),
    "kv_heads_before_predicted": Codec(
        _read_others,
        lambda value, values: _write_heads(values, values["local_kv_heads"], value),
        ("int",),
        ("any", "any"),
        _LAYERS,
        ("local_kv_heads",),
    ),
    "local_kv_heads_before_predicted": Codec(
        _read_local,
        lambda value, values: _write_heads(values, value, values["n_kv_heads"]),
        ("int",),
        ("any", "any"),
        {**_LAYERS, "n_kv_heads": NUMBER},
    ),
}
