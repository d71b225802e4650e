"""Codecs of flags, one for each layer: true for those that something is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from maxtool.recipe.codec_type import (
    FLAGS_OR_NULL,
    NUMBER,
    NUMBER_OR_NULL,
    Codec,
    Raws,
    Unspellable,
)
from maxtool.recipe.expressions import Undefined, Values
from maxtool.recipe.keys import short

Flags = tuple[bool, ...]
MAX_LAYERS = 1 << 16


def period(layers: int, every: int) -> Flags:
    """A flag for each layer: all but every ``every``-th."""
    return tuple((layer + 1) % every != 0 for layer in range(layers))


def _read_period(raws: Raws, values: Values) -> Any:  # noqa: ANN401
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
    return [LAYER_TYPES.get(item, item) if isinstance(item, str) else item for item in listed]


def _write_layer_types(flags: Flags, _values: Values) -> Raws:
    return ([name for flag in flags for name, own in LAYER_TYPES.items() if own == flag],)


def _read_sparse(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """All layers but those that a list names, and of them every n-th."""
    dense, every = raws
    if dense is None and every is None:
        return None
    dense = [] if dense is None else dense
    if not isinstance(dense, list | tuple):
        raise Undefined(f"{short(dense)} is not a list of numbers of layers")
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
    return _read_period([GEMMA3_PERIOD if every is None else every], values)


def _write_gemma3(flags: Flags, values: Values) -> Raws:
    usual = not all(flags) and flags == period(len(flags), GEMMA3_PERIOD)
    return (None, None) if usual or not any(flags) else (None, *_write_period(flags, values))


GEMMA3_PERIOD, QWEN3_NEXT_PERIOD = 6, 4


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
    if not isinstance(listed, list | tuple):
        raise Undefined(f"{short(listed)} is not a list of the kinds of layers")
    return [KINDS_OF_WINDOWS.get(item, item) if isinstance(item, str) else item for item in listed]


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


Kinds = Mapping[str, bool]
CONVOLVED: Kinds = {"full_attention": True, "conv": False}
LINEAR: Kinds = {"full_attention": True, "linear_attention": False}
STATE_SPACES: Kinds = {"attention": True, "mamba": False, **LINEAR}


def _read_attention(raws: Raws, values: Values, kinds: Kinds = CONVOLVED) -> Any:  # noqa: ANN401
    """Read the kind of each layer, or where there is none the numbers of those with attention."""
    numbers, listed = raws
    if isinstance(listed, list | tuple):
        return [kinds.get(item, item) if isinstance(item, str) else item for item in listed]
    if listed is not None:
        raise Undefined(f"{short(listed)} is not a list of the kinds of layers")
    if numbers is None:
        return None
    if not isinstance(numbers, list | tuple):
        raise Undefined(f"{short(numbers)} is not a list of numbers of layers")
    return tuple(layer in numbers for layer in range(values["n_layers"]))


def _listed_kinds(flags: Flags, other: str) -> list[str]:
    return ["full_attention" if flag else other for flag in flags]


def _read_linear(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the kind of each layer, or where there is none n: every n-th has attention."""
    listed, every = raws
    if listed is None:
        return _every(every, values)
    return _read_attention([None, listed], values, LINEAR)


def _read_mamba(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the kind of each layer, or the numbers of those with attention, of which may be none."""
    flags = _read_attention(raws, values, STATE_SPACES)
    return (False,) * values["n_layers"] if flags is None else flags


# The kinds of layers of one part each, as names and as letters of a pattern.
PARTS = {"linear_attention": "M", "mamba": "M", "full_attention": "*", "attention": "*"}
PARTS |= {"mlp": "-", "moe": "E"}
DENSE = ("attention_layers", "mlp_layers")


def _in_pattern(kinds: str, fields: tuple[str, ...] = DENSE) -> Codec:
    """Flags of the layers that are of some kinds, of a pattern of letters or a list of names.

    ``fields`` are the flags that say all kinds of layers there may be.
    """

    def read(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
        pattern, listed = (_letters(raw) for raw in raws)
        if None not in (pattern, listed) and pattern != listed:
            raise Undefined(f"the kinds of layers are both {short(raws[0])} and {short(raws[1])}")
        found = listed if pattern is None else pattern
        if fields == DENSE and "E" in (found or ()):
            raise Undefined("there are layers of experts, and no tensors of any")
        return None if found is None else tuple(kind in kinds for kind in found)

    def write(flags: Flags, values: Values) -> Raws:
        letters = list(_kinds_of_layers({field: values[field] for field in ("n_layers", *fields)}))
        if tuple(kind in kinds for kind in letters) != flags:
            raise Unspellable
        return "".join(letters), None

    return Codec(
        read=read,
        write=write,
        types=("flags",),
        keys=("any", "any"),
        needs={"n_layers": NUMBER},
        writes_with=fields,
    )


def _letters(raw: Any) -> list[str] | None:  # noqa: ANN401
    """The letters of the kinds of layers."""
    if raw is None:
        return None
    if not isinstance(raw, str | list | tuple):
        raise Undefined(f"{short(raw)} are no kinds of layers")
    letters = [PARTS.get(kind, kind) if isinstance(kind, str) else kind for kind in raw]
    for letter in letters:
        if letter not in PARTS.values():
            raise Undefined(f"{short(letter)} is no kind of layer: {', '.join(PARTS)}")
    return letters


def _kinds_of_layers(values: Values) -> Iterator[str]:
    """Yield the letter of each layer."""
    layers = values["n_layers"]
    attends = values["attention_layers"] or (True,) * layers
    widens = values["mlp_layers"] or (True,) * layers
    chooses = values.get("expert_layers") or (False,) * layers
    for layer in range(layers):
        wide = "E" if chooses[layer] else "-"
        yield "*" if attends[layer] else wide if widens[layer] else "M"


def _read_by_number(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the numbers of the layers that have something; without a list, none has."""
    return _read_mamba([raws[0], None], values)


def _write_none(flags: Flags, _values: Values) -> Raws:
    if any(flags):
        raise Unspellable
    return ()


def _every(every: Any, values: Values) -> Any:  # noqa: ANN401
    flags = _read_period([every], values)
    return tuple(not flag for flag in flags) if isinstance(flags, tuple) else flags


def _read_recurrent(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read flags of layers without attention, or where there are none as of their period.

    Layers that predict further tokens are listed behind the others, as such with attention.
    """
    listed, every = raws
    if not isinstance(listed, list | tuple):
        return _every(every, values) if listed is None else listed
    if not any(listed[values["n_layers"] :]):
        listed = listed[: values["n_layers"]]
    return [not flag if isinstance(flag, bool) else flag for flag in listed]


def _read_computed(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """Read how many layers there are beside those that predict further tokens."""
    count, predicted = raws
    return None if count is None else count - (predicted or 0)


def _read_with_heads(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """Read the layers that have something from how much of it each has."""
    (counts,) = raws
    return [count != 0 for count in counts] if isinstance(counts, list | tuple) else None


def _with_sizes(field: str) -> Codec:
    """Flags of the layers that have something, kept as its size in each layer."""
    return Codec(
        read=_read_with_heads,
        write=lambda flags, values: ([values[field] if flag else 0 for flag in flags],),
        types=("flags",),
        needs={field: NUMBER},
    )


def _read_offset(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read every n-th layer from one on that is less than n."""
    first, every = raws
    if every is None:
        return None
    if first is None:
        raise Undefined("the first of these layers is missing")
    if first >= every:
        raise Undefined(f"{short(first)} is not below {short(every)}")
    return tuple(layer % every == first for layer in range(values["n_layers"]))


def _write_offset(flags: Flags, _values: Values) -> Raws:
    """Write the first layer and how often one follows; of none, one that there is not."""
    places = [layer for layer, flag in enumerate(flags) if flag]
    first, second = [*places, len(flags), 2 * len(flags) + 1][:2]
    every = second - first if len(places) > 1 else len(flags) + 1
    if flags != tuple(layer % every == first for layer in range(len(flags))):
        raise Unspellable
    return first, every


def _read_offset_of_experts(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read as others are; no layer has experts where there is one in all."""
    return (False,) * values["n_layers"] if values["n_experts"] == 1 else _read_offset(raws, values)


def _write_offset_of_experts(flags: Flags, values: Values) -> Raws:
    if values["n_experts"] == 1 and any(flags):
        raise Unspellable
    return _write_offset(flags, values)


_LISTED = _flags(_read_layer_types, _write_layer_types)
_PERIOD = _flags(_read_period, _write_period)
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
    "layers_of_attention": Codec(
        read=_read_attention,
        write=lambda flags, _: (None, _listed_kinds(flags, "conv")),
        types=("flags",),
        keys=("any", "any"),
    ),
    "mamba_layers": Codec(
        read=_read_mamba,
        write=lambda flags, _: (None, ["attention" if flag else "mamba" for flag in flags]),
        types=("flags",),
        keys=("any", "any"),
    ),
    "offset_and_period": Codec(_read_offset, _write_offset, ("flags",), ("count", "int")),
    "offset_and_period_of_experts": Codec(
        _read_offset_of_experts,
        _write_offset_of_experts,
        ("flags",),
        ("count", "int"),
        needs={"n_experts": NUMBER},
    ),
    "layers_by_number": Codec(
        read=_read_by_number,
        write=lambda flags, _: ([layer for layer, flag in enumerate(flags) if flag],),
        types=("flags",),
    ),
    "attention_in_pattern": _in_pattern("*"),
    "mlp_in_pattern": _in_pattern("-"),
    "attention_beside_experts": _in_pattern("*", (*DENSE, "expert_layers")),
    "mlp_or_experts_in_pattern": _in_pattern("-E", (*DENSE, "expert_layers")),
    "experts_in_pattern": _in_pattern("E", (*DENSE, "expert_layers")),
    "no_layer": Codec(
        read=lambda _, values: (False,) * values["n_layers"],
        write=_write_none,
        types=("flags",),
        keys=(),
    ),
    "linear_layers_or_period": Codec(
        read=_read_linear,
        write=lambda flags, _: (_listed_kinds(flags, "linear_attention"), None),
        types=("flags",),
        keys=("any", "any"),
    ),
    # llama.cpp's converter writes the same period beside any list, which is what counts.
    "recurrent_layers_or_period": Codec(
        read=_read_recurrent,
        write=lambda flags, _: ([not flag for flag in flags], QWEN3_NEXT_PERIOD),
        types=("flags",),
        keys=("any", "any"),
    ),
    "layers_before_predicted": Codec(
        read=_read_computed,
        write=lambda value, _: (value, None),
        types=("int",),
        keys=("int", "count"),
    ),
    "layers_with_heads": _with_sizes("n_kv_heads"),
    "layers_with_experts": _with_sizes("expert_size"),
    "layers_with_width": _with_sizes("intermediate_size"),
    "from_layer": _FIRST,
    "gpt_neo_windows": Codec(_read_gpt_neo, _write_gpt_neo, ("flags",), ("any", "any")),
    "layer_types_or_behind_first": Codec(
        read=_either(_LISTED, _BEHIND_FIRST).read,
        write=_write_types_or_n,
        types=("flags",),
        keys=("any", "any"),
    ),
    "behind_first": _flags(_read_switches_or_n, _write_switches_or_n),
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
