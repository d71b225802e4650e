"""Codecs of the layers that have attention, a state, an MLP or experts, as flags of each layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from maxtool.recipe.codec_type import NUMBER, Codec, Raws, Unspellable
from maxtool.recipe.expressions import Undefined, Values
from maxtool.recipe.keys import short
from maxtool.recipe.layer_codecs import Flags, read_period
from maxtool.recipe.listed_layers import by_kind, numbered

Kinds = Mapping[str, bool]
CONVOLVED: Kinds = {"full_attention": True, "conv": False}
LINEAR: Kinds = {"full_attention": True, "linear_attention": False}
STATE_SPACES: Kinds = {"attention": True, "mamba": False, **LINEAR}


def _read_attention(raws: Raws, values: Values, kinds: Kinds = CONVOLVED) -> Any:  # noqa: ANN401
    """Read the kind of each layer, or where there is none the numbers of those with attention."""
    numbers, listed = raws
    if listed is not None:
        return by_kind(listed, kinds)
    if numbers is None:
        return None
    own = numbered(numbers)
    return tuple(layer in own for layer in range(values["n_layers"]))


def _listed_kinds(flags: Flags, other: str) -> list[str]:
    return ["full_attention" if flag else other for flag in flags]


def _read_linear(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the kind of each layer, or where there is none n: every n-th has attention."""
    listed, every = raws
    if listed is None:
        return _every(every, values)
    return _read_attention([None, listed], values, LINEAR)


def _read_numbered(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the kind of each layer, or the numbers of both kinds; without either one in four."""
    listed, *numbers = raws
    if numbers == [None, None]:
        layers = range(values["n_layers"])
        unsaid = tuple(layer > 0 and layer % KIMI_PERIOD == 0 for layer in layers)
        return unsaid if listed is None else _read_linear([listed, None], values)
    flags = _partitioned(numbers, values["n_layers"])
    if listed is not None and _read_linear([listed, None], values) != list(flags):
        raise Undefined("the kinds of layers are not those of the lists of numbers")
    return flags


def _partitioned(numbers: Raws, layers: int) -> Flags:
    """Flags of the layers of the first list; each layer is in one of both, counted from 1."""
    both = [each if isinstance(each, list | tuple) else [] for each in numbers]
    named = [number for each in both for number in each]
    if len(named) != layers or any(number not in named for number in range(1, layers + 1)):
        raise Undefined(f"{short(both)} are not the numbers of {layers} layers, each once")
    return tuple(number in both[0] for number in range(1, layers + 1))


def _write_numbered(flags: Flags, _values: Values) -> Raws:
    kinds = (True, False)
    numbers = [[n for n, flag in enumerate(flags, 1) if flag == kind] for kind in kinds]
    return (None, *numbers)


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
    flags = read_period([every], values)
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


QWEN3_NEXT_PERIOD = 4
KIMI_PERIOD = 4  # of layers with attention, of which the first is none

MIXER_CODECS: Mapping[str, Codec] = {
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
    "linear_layers_by_number": Codec(
        read=_read_numbered,
        write=_write_numbered,
        types=("flags",),
        keys=("any", "any", "any"),
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
}
