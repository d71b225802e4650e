"""Codecs of flags, one for each layer: true for those that something is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from maxtool.recipe.codec_type import (
    FLAGS_OR_NULL,
    NUMBER_OR_NULL,
    Codec,
    Raws,
    Unspellable,
)
from maxtool.recipe.expressions import Undefined, Values
from maxtool.recipe.keys import short
from maxtool.recipe.listed_layers import by_kind, numbered

Flags = tuple[bool, ...]
MAX_LAYERS = 1 << 16


def period(layers: int, every: int) -> Flags:
    """A flag for each layer: all but every ``every``-th."""
    return tuple((layer + 1) % every != 0 for layer in range(layers))


def read_period(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read n: all layers but every n-th; what is no such number is given as it is."""
    every = raws[0]
    fits = type(every) is int and 0 < every <= MAX_LAYERS
    return period(values["n_layers"], every) if fits else every


def _write_period(flags: Flags, _values: Values) -> Raws:
    every = (flags.index(False) if False in flags else len(flags)) + 1
    if period(len(flags), every) != flags:
        raise Unspellable
    return (every,)


def _read_first(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    first = raws[0]
    if type(first) is not int or first < 0:
        return first
    return tuple(layer >= first for layer in range(values["n_layers"]))


def _write_first(flags: Flags, _values: Values) -> Raws:
    first = flags.index(True) if True in flags else len(flags)
    if not all(flags[first:]):
        raise Unspellable
    return (first,)


def _read_alternating(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the first of every two layers, up to some layer."""
    last = raws[0]
    if type(last) is not int or last < 0:
        return last
    return tuple(layer % 2 == 0 and layer < last for layer in range(values["n_layers"]))


def _write_alternating(flags: Flags, values: Values) -> Raws:
    last = max((layer + 1 for layer, flag in enumerate(flags) if flag), default=0)
    if _read_alternating([last], values) != flags:
        raise Unspellable
    return (last,)


LAYER_TYPES = {"sliding_attention": True, "full_attention": False}


def _read_layer_types(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    (listed,) = raws
    if not isinstance(listed, list | tuple):
        return listed
    return by_kind(listed, LAYER_TYPES)


def _write_layer_types(flags: Flags, _values: Values) -> Raws:
    return ([name for flag in flags for name, own in LAYER_TYPES.items() if own == flag],)


def _read_sparse(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """All layers but those that a list names, and of them every n-th."""
    dense, every = raws
    if dense is None and every is None:
        return None
    dense = numbered([] if dense is None else dense)
    layers = range(values["n_layers"])
    return tuple(layer not in dense and (layer + 1) % (every or 1) == 0 for layer in layers)


def _write_sparse(flags: Flags, _values: Values) -> Raws:
    return [layer for layer, flag in enumerate(flags) if not flag], 1


def _flags(read: Callable[[Raws, Values], Any], write: Callable[[Flags, Values], Raws]) -> Codec:
    return Codec(read, write, ("flags",))


def _either(listed: Codec, whole: Codec) -> Codec:
    """A list of all layers, or where there is none a key that says them as a whole."""
    return Codec(
        read=lambda raws, values: (
            whole.read(raws[1:], values) if raws[0] is None else listed.read(raws[:1], values)
        ),
        write=lambda flags, values: (*listed.write(flags, values), None),
        types=("flags",),
        keys=("any", "any"),
    )


def _windowed(codec: Codec) -> Codec:
    """Flags that are null, and not written, where there is no window."""
    return Codec(
        read=lambda raws, values: (
            None if values["sliding_window"] is None else codec.read(raws, values)
        ),
        write=lambda flags, values: (
            [None] * len(codec.keys)
            if values["sliding_window"] is None
            else codec.write(flags, values)
        ),
        types=codec.types,
        keys=codec.keys,
        needs={**codec.needs, "sliding_window": NUMBER_OR_NULL},
    )


def _read_gemma3(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    window, every = raws
    if window is None and every is not None:
        raise Undefined("a pattern of windows, and no key says how wide they are")
    if window is not None and every == 1:
        raise Undefined("a window, and no layer has it")
    if window is None:
        return (False,) * values["n_layers"]
    return read_period([GEMMA3_PERIOD if every is None else every], values)


def _write_gemma3(flags: Flags, values: Values) -> Raws:
    usual = not all(flags) and flags == period(len(flags), GEMMA3_PERIOD)
    return (None, None) if usual or not any(flags) else (None, *_write_period(flags, values))


GEMMA3_PERIOD = 6


def _read_smollm3(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read a list, or a switch that gives the window to the layers that do not rotate."""
    switched, listed = raws
    if listed is not None:
        return _read_layer_types([listed], values)
    return _not_rotated(values) if switched else (False,) * values["n_layers"]


def _write_smollm3(flags: Flags, values: Values) -> Raws:
    if flags == _not_rotated(values) and not all(flags):
        return True, None
    return (True, *_write_layer_types(flags, values)) if any(flags) else (None, None)


def _not_rotated(values: Values) -> Flags:
    rotated = values["rope_layers"] or (True,) * values["n_layers"]
    return tuple(not flag for flag in rotated)


def _read_rotated(_raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the layers that have a window; where none has one, all rotate."""
    if values["sliding_window"] is None:
        return None
    return values["sliding_layers"] or (True,) * values["n_layers"]


def _write_rotated(flags: Flags, values: Values) -> Raws:
    if flags != _read_rotated((), values):
        raise Unspellable
    return ()


def _read_after_first(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read a list, or where there is none all layers but the first of every four."""
    if values["sliding_window"] is None:
        return None
    if raws[0] is None:
        return tuple(layer % 4 != 0 for layer in range(values["n_layers"]))
    return _read_layer_types(raws, values)


def _write_after_first(flags: Flags, values: Values) -> Raws:
    return [None] if values["sliding_window"] is None else _write_layer_types(flags, values)


MODERNBERT_PERIOD = 3


def _read_behind_first(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read n: all but the first of every n layers."""
    every = raws[0]
    fits = type(every) is int and 0 < every <= MAX_LAYERS
    return tuple(layer % every != 0 for layer in range(values["n_layers"])) if fits else every


def _write_behind_first(flags: Flags, values: Values) -> Raws:
    """Write n; of several that mean the same the usual one."""
    fewest = flags.index(False, 1) if False in flags[1:] else len(flags)
    for every in (MODERNBERT_PERIOD, fewest):
        if _read_behind_first([every], values) == flags:
            return (every,)
    raise Unspellable


def _read_switches_or_n(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read flags, or n, from one key."""
    return raws[0] if isinstance(raws[0], list | tuple) else _read_behind_first(raws, values)


def _write_switches_or_n(flags: Flags, values: Values) -> Raws:
    try:
        return _write_behind_first(flags, values)
    except Unspellable:
        return (list(flags),)


def _write_types_or_n(flags: Flags, values: Values) -> Raws:
    """Write n where it says all, which older releases of transformers read, too."""
    try:
        return None, *_write_behind_first(flags, values)
    except Unspellable:
        return *_write_layer_types(flags, values), None


KINDS_OF_WINDOWS = {"local": True, "global": False}
GPT_NEO_TYPES = ((("global", "local"), 12),)


def _read_gpt_neo(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the kind of each layer, or how often which kinds follow each other."""
    listed, types = raws
    if listed is None:
        listed = _repeated(GPT_NEO_TYPES if types is None else types, values["n_layers"])
    return by_kind(listed, KINDS_OF_WINDOWS)


def _repeated(types: object, layers: int) -> list[object]:
    """The kinds of layers that runs of them come to, of no more than one too many."""
    listed: list[object] = []
    for run in types if isinstance(types, list | tuple) else [types]:
        match run:
            case (list() | tuple() as kinds, int(count)) if count >= 0:
                listed += [*kinds] * min(count, layers + 1)
            case _:
                raise Undefined(f"{short(types)} are no kinds of layers and how often they follow")
        if len(listed) > layers:
            break
    return listed


def _write_gpt_neo(flags: Flags, _values: Values) -> Raws:
    names = {own: name for name, own in KINDS_OF_WINDOWS.items()}
    listed = [names[flag] for flag in flags]
    return listed, [[listed, 1]]


_LISTED = _flags(_read_layer_types, _write_layer_types)
_PERIOD = _flags(read_period, _write_period)
_FIRST = _flags(_read_first, _write_first)
_BEHIND_FIRST = _flags(_read_behind_first, _write_behind_first)
_SMOLLM3 = Codec(
    _read_smollm3, _write_smollm3, ("flags",), ("bool", "any"), {"rope_layers": FLAGS_OR_NULL}
)
_SWITCHES = _flags(lambda raws, _: raws[0], lambda flags, _: (list(flags),))
_PLAIN = _flags(lambda raws, _: raws[0], lambda flags, _: ([int(flag) for flag in flags],))

LAYER_CODECS: Mapping[str, Codec] = {
    "period": _PERIOD,
    "layer_types_or_period": _either(_LISTED, _PERIOD),
    "flags_or_period": _either(_PLAIN, _PERIOD),
    "sparse_layers": Codec(_read_sparse, _write_sparse, ("flags",), ("any", "int")),
    "listed_or_period": _either(_SWITCHES, _PERIOD),
    "flags_of_windows": _windowed(_SWITCHES),
    "exaone4_windows": _windowed(_either(_LISTED, _PERIOD)),
    "rotated_where_sliding": Codec(
        read=_read_rotated,
        write=_write_rotated,
        types=("flags",),
        keys=(),
        needs={"sliding_window": NUMBER_OR_NULL, "sliding_layers": FLAGS_OR_NULL},
    ),
    "from_layer": _FIRST,
    "gpt_neo_windows": Codec(_read_gpt_neo, _write_gpt_neo, ("flags",), ("any", "any")),
    "layer_types_or_behind_first": Codec(
        read=_either(_LISTED, _BEHIND_FIRST).read,
        write=_write_types_or_n,
        types=("flags",),
        keys=("any", "any"),
    ),
    "behind_first": _flags(_read_switches_or_n, _write_switches_or_n),
    "behind_first_if_windows": _windowed(_flags(_read_switches_or_n, _write_switches_or_n)),
    "windows_after_first": Codec(
        _read_after_first,
        _write_after_first,
        ("flags",),
        needs={"sliding_window": NUMBER_OR_NULL},
    ),
    "qwen2_moe_windows": _windowed(_either(_LISTED, _flags(_read_alternating, _write_alternating))),
    "qwen2_windows": _windowed(_either(_LISTED, _FIRST)),
    "gemma3_windows": Codec(_read_gemma3, _write_gemma3, ("flags",), ("int", "any")),
    "smollm3_windows": _windowed(_SMOLLM3),
}
