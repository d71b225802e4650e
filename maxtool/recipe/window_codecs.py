"""Codecs of windows: how wide they are, and which layers have one where some attend to nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from maxtool.recipe.codec_type import FLAGS_OR_NULL, NUMBER, Codec, Raws, Unspellable
from maxtool.recipe.expressions import Undefined, Values
from maxtool.recipe.listed_layers import by_kind

# Whether layers of a kind attend, and have a window.
KINDS: Mapping[str, tuple[bool, bool]] = {
    "full_attention": (True, False),
    "sliding_attention": (True, True),
    "conv": (False, False),
}
# Those of every four layers, in turn, where a configuration of LFM3 lists none.
LFM3: Sequence[str] = ("sliding_attention", "conv", "full_attention", "conv")


def _read_window(raws: Raws, values: Values) -> Any:  # noqa: ANN401 - the field's type decides
    """Read a width; null stands for the context, unless some layer has a window."""
    if raws[0] is None and any(values["sliding_layers"] or ()):
        raise Undefined("null, and there are layers with a window")
    return values["context_length"] if raws[0] is None else raws[0]


def _usual(layers: int) -> list[str]:
    """The kinds of LFM3's layers, the first of which has a convolution."""
    return ["conv", *(LFM3[layer % len(LFM3)] for layer in range(1, layers))]


def _in_kinds(index: int, other: str) -> Codec:
    """The codec of one of two fields whose flags a list of kinds tells, the other's name given."""

    def read(raws: Raws, values: Values) -> Any:  # noqa: ANN401
        listed = _usual(values["n_layers"]) if raws[0] is None else raws[0]
        return by_kind(listed, {kind: flags[index] for kind, flags in KINDS.items()})

    def write(value: tuple[bool, ...], values: Values) -> Raws:
        others = values[other] or (True,) * len(value)
        both = [*zip(*((value, others) if index == 0 else (others, value)), strict=True)]
        names = {flags: kind for kind, flags in KINDS.items()}
        if not names.keys() >= {*both}:
            raise Unspellable  # a window of a layer that does not attend
        return ([names[flags] for flags in both],)

    return Codec(
        read=read,
        write=write,
        types=("flags",),
        keys=("any",),
        needs={"n_layers": NUMBER},
        writes_with=(other,),
    )


WINDOW_CODECS: Mapping[str, Codec] = {
    "window_of_layers": Codec(
        read=_read_window,
        write=lambda value, _: (value,),
        types=("int",),
        keys=("any",),
        needs={"sliding_layers": FLAGS_OR_NULL, "context_length": NUMBER},
    ),
    "attention_in_kinds": _in_kinds(0, "sliding_layers"),
    "windows_in_kinds": _in_kinds(1, "attention_layers"),
}
