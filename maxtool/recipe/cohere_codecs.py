"""Codecs of Cohere's models with experts: layers without experts come first, and are special."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from maxtool.recipe.codec_type import FLAGS_OR_NULL, NUMBER, Codec, Raws, Unspellable
from maxtool.recipe.expert_codecs import EXPERT_CODECS
from maxtool.recipe.expressions import Undefined, Values
from maxtool.recipe.keys import short
from maxtool.recipe.layer_codecs import LAYER_CODECS, Flags

SHARED = EXPERT_CODECS["shared_experts_and_width"]
LISTED = LAYER_CODECS["layer_types_or_period"]
# Every how many layers there is no window: of the first ones, and of the others.
FIRST_EVERY, EVERY = 1, 4
SOFTMAX = "softmax"
# What both dialects have of the norm that a model has not.
UNUSED_EPS = 1e-5


def _windows(count: int, every: int) -> Flags:
    return tuple((layer + 1) % every != 0 for layer in range(count))


def _read_windows(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read a list, or a period of the first layers and one of those behind."""
    listed, *numbers = raws
    if listed is not None:
        return LISTED.read([listed, None], values)
    usual = (0, FIRST_EVERY, EVERY)
    first, *periods = (own if raw is None else raw for raw, own in zip(numbers, usual, strict=True))
    fits = all(type(each) is int and each > 0 for each in periods)
    if not fits or type(first) is not int or not 0 <= first <= values["n_layers"]:
        raise Undefined(f"windows by {short([first, *periods])}: no numbers of layers")
    return _windows(first, periods[0]) + _windows(values["n_layers"] - first, periods[1])


def _write_windows(flags: Flags, values: Values) -> Raws:
    return LISTED.write(flags, values)[0], None, None, None


def _all_rotated(values: Values, every: object) -> Flags:
    """The layers with a window, and, where ``every`` is 1, those without experts."""
    layers = range(values["n_layers"])
    windows = values["sliding_layers"] or (True,) * len(layers)
    experts = values["expert_layers"] or (True,) * len(layers)
    return tuple(windows[i] or (every == FIRST_EVERY and not experts[i]) for i in layers)


def _read_rotated(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    every = raws[0] if raws else FIRST_EVERY
    return _all_rotated(values, FIRST_EVERY if every is None else every)


def _write_rotated(flags: Flags, values: Values) -> Raws:
    return (next(_ways(flags, values)),)


def _ways(flags: Flags, values: Values) -> Any:  # noqa: ANN401
    """Yield the periods of the first layers by which those layers rotate; raise where none does."""
    yield from (every for every in (FIRST_EVERY, EVERY) if _all_rotated(values, every) == flags)
    raise Unspellable


def _write_granted(flags: Flags, values: Values) -> Raws:
    if _all_rotated(values, FIRST_EVERY) != flags:
        raise Unspellable
    return ()


def _of_norm(norm: str, eps: float) -> Raws:
    if norm not in ("layer", "rms"):
        raise Unspellable
    return (eps, UNUSED_EPS) if norm == "rms" else (None, eps)


def _write_added_up(value: bool, values: Values) -> Raws:
    if not value and values["expert_scores"] == SOFTMAX:
        raise Unspellable
    return None if value else "sigmoid", value


NEEDS = {"sliding_layers": FLAGS_OR_NULL, "expert_layers": FLAGS_OR_NULL}

COHERE_CODECS: Mapping[str, Codec] = {
    "windows_behind_first": Codec(_read_windows, _write_windows, ("flags",), ("any",) * 4),
    "rotated_or_dense": Codec(_read_rotated, _write_rotated, ("flags",), needs=NEEDS),
    "rotated_or_first": Codec(_read_rotated, _write_granted, ("flags",), (), NEEDS),
    "first_said": Codec(
        read=lambda raws, _: raws[1] if raws[0] is None else raws[0],
        write=lambda value, values: (value, None)[:: -1 if value == values["expert_size"] else 1],
        types=("int",),
        keys=("any", "any"),
        writes_with=("expert_size",),
    ),
    "shared_if_any": replace(
        SHARED, write=lambda value, values: SHARED.write(value, values) if value else (None, None)
    ),
    "norm_by_eps": Codec(
        read=lambda raws, _: "layer" if raws[0] is None else "rms",
        write=lambda value, values: _of_norm(value, values["norm_eps"]),
        types=("str",),
        keys=("any", "any"),
        needs={"norm_eps": NUMBER},
    ),
    "eps_of_norm": Codec(
        read=lambda raws, _: raws[1] if raws[0] is None else raws[0],
        write=lambda value, values: _of_norm(values["norm"], value),
        types=("float",),
        keys=("any", "any"),
        writes_with=("norm",),
    ),
    "added_up_to_one": Codec(
        read=lambda raws, _: raws[0] in (None, SOFTMAX) or raws[1],
        write=_write_added_up,
        types=("bool",),
        keys=("any", "any"),
        writes_with=("expert_scores",),
    ),
}
