"""Codecs of experts: how many, how wide, and in which layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from maxtool.recipe.codec_type import NUMBER, Codec, Raws, Unspellable
from maxtool.recipe.expressions import Undefined, Values, same
from maxtool.recipe.keys import short
from maxtool.recipe.layer_codecs import Flags
from maxtool.recipe.listed_layers import by_kind

# --- numbers -------------------------------------------------------------------------------------


def _alike(raw: object) -> Any:  # noqa: ANN401
    """The number that each layer has in a list; anything else as it is."""
    if not isinstance(raw, list | tuple):
        return raw
    if not raw or any(not same(each, raw[0]) for each in raw):
        raise Undefined(f"layers have {short(raw)}, of which one number is read")
    return raw[0]


def _read_shared(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the width of so many experts in one; null for none."""
    count = _alike(raws[0])
    return count * values["expert_size"] if type(count) is int and count > 0 else count or None


GREEDY, LIMITED = "greedy", "group_limited_greedy"


def _read_groups(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """Read how many groups are chosen from: a number is there where none are, too."""
    way, count = raws
    if way not in (None, GREEDY, LIMITED):
        raise Undefined(f"experts are chosen by {short(way)}: {GREEDY} and {LIMITED} are supported")
    return count if way == LIMITED else 1


def _shared(value: int | None, values: Values) -> int:
    size: int = values["expert_size"]
    count, rest = divmod(value or 0, size)
    if rest:
        raise Unspellable
    return count


def _read_width(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read a width beside how many experts have it together, which must agree with it."""
    count, width = raws
    counted = _read_shared([count], values)
    if count is not None and width is not None and not same(counted, width):
        raise Undefined(f"{short(count)} shared experts are not {short(width)} wide")
    return counted if width is None else width


# --- layers --------------------------------------------------------------------------------------


def _between(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Every n-th layer, from some layer on and up to one; -1 is the last."""
    every, first, *rest = (
        usual if raw is None else raw for raw, usual in zip(raws, (1, 1, -1), strict=False)
    )
    last = rest[0] if rest else -1
    if any(type(each) is not int for each in (every, first, last)) or every < 1:
        raise Undefined(f"experts in every {short(every)} of {short(first)} to {short(last)}")
    layers = values["n_layers"]
    last = layers - 1 if last == -1 else last
    return tuple((layer + 1) % every == 0 and first <= layer <= last for layer in range(layers))


def _written(count: int) -> Callable[[Flags, Values], Raws]:
    """Write a step, the first layer that has experts, and the last if ``count`` is 3."""

    def write(flags: Flags, values: Values) -> Raws:
        chosen = [layer for layer, flag in enumerate(flags) if flag] or [len(flags)]
        steps = (1, *(after - chosen[0] for after in chosen[1:2]), chosen[0] + 1)
        lasts = (len(flags) - 1, chosen[-1])
        ways = ((every, chosen[0], last)[:count] for last in lasts for every in steps)
        found = next((way for way in ways if _between(way, values) == flags), None)
        if found is None:
            raise Unspellable
        return found

    return write


def _read_share(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """Read whether weights are divided by a norm: null is by none."""
    return raws[0] is not None


def _write_share(value: bool, _values: Values) -> Raws:
    if not value:
        raise Unspellable
    return (None,)  # the order of the norm is written


KINDS = {"dense": False, "sparse": True}


def _read_kinds(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the kind of each layer's MLP, or where there is no list the first that has experts."""
    listed, first = raws
    if listed is None:
        fits = type(first) is int and first >= 0
        return tuple(layer >= first for layer in range(values["n_layers"])) if fits else first
    return by_kind(listed, KINDS)


def _write_kinds(flags: Flags, _values: Values) -> Raws:
    return [name for flag in flags for name, own in KINDS.items() if own == flag], None


EXPERT_CODECS: Mapping[str, Codec] = {
    "groups_if_limited": Codec(
        read=_read_groups,
        write=lambda value, _: (LIMITED if value > 1 else GREEDY, value),
        types=("int",),
        keys=("any", "any"),
    ),
    "shared_experts": Codec(
        read=_read_shared,
        write=lambda value, values: (_shared(value, values),),
        types=("int",),
        needs={"expert_size": NUMBER},
    ),
    "shared_in_layers": Codec(
        read=_read_shared,
        write=lambda value, values: ([_shared(value, values)] * values["n_layers"],),
        types=("int",),
        needs={"expert_size": NUMBER, "n_layers": NUMBER},
    ),
    "shared_experts_and_width": Codec(
        read=_read_width,
        write=lambda value, values: (_shared(value, values), value),
        types=("int",),
        keys=("any", "any"),
        needs={"expert_size": NUMBER},
    ),
    "same_in_layers": Codec(
        read=lambda raws, _: _alike(raws[0]),
        write=lambda value, values: ([value] * values["n_layers"],),
        types=("int",),
        needs={"n_layers": NUMBER},
    ),
    "divided_by_norm": Codec(
        read=_read_share,
        write=_write_share,
        types=("bool",),
    ),
    "experts_from": Codec(_between, _written(2), ("flags",), ("any", "any")),
    "experts_between": Codec(_between, _written(3), ("flags",), ("any", "any", "any")),
    "experts_listed_or_from": Codec(_read_kinds, _write_kinds, ("flags",), ("any", "any")),
}
