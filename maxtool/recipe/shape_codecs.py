"""Codecs of layers of unequal shapes: those with a window, and those without, or one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from maxtool.recipe.codec_type import FLAGS_OR_NULL, NUMBER, Codec, Raws, Unspellable
from maxtool.recipe.expressions import Undefined, Values
from maxtool.recipe.keys import short
from maxtool.recipe.layer_codecs import LAYER_CODECS, Flags

Widths = tuple[int, ...]
# What transformers' tables of single layers say, and the field of layers with a window.
OF_LAYERS = {"head_dim": "local_head_dim", "num_key_value_heads": "local_kv_heads"}
WINDOWS = {"sliding_layers": FLAGS_OR_NULL}


def _windows(values: Values) -> Flags:
    """Flags of the layers that have a window."""
    flags: Flags | None = values["sliding_layers"]
    return (True,) * values["n_layers"] if flags is None else flags


def _of_kind(values: Values, *, is_local: bool) -> list[int]:
    return [layer for layer, flag in enumerate(_windows(values)) if flag is is_local]


# --- tables of single layers ---------------------------------------------------------------------


def _of_tables(tables: Any, key: str, values: Values) -> Any:  # noqa: ANN401
    """The value that tables of single layers say of all layers without a window; null without such.

    Layers with a window must be as the rest of the configuration says.
    """
    if not isinstance(tables, Mapping):
        raise Undefined(f"per_layer_config = {short(tables)} is no table of layers")
    usual = values[OF_LAYERS[key]]
    by_layer = dict(_layers(tables, values["n_layers"]))
    said = [by_layer.get(layer, {}).get(key, usual) for layer in range(values["n_layers"])]
    for layer in _of_kind(values, is_local=True):
        if said[layer] != usual:
            what = f"per_layer_config.{layer}.{key} = {short(said[layer])}, and others have {usual}"
            raise Undefined(f"{what}: layers with a window are alike")
    whole = [said[layer] for layer in _of_kind(values, is_local=False)]
    for other in whole:
        if other != whole[0]:
            several = f"{short(whole[0])} and {short(other)}"
            raise Undefined(f"per_layer_config.*.{key} is {several}: layers without one are alike")
    return whole[0] if whole else usual


def _layers(tables: Mapping[str, Any], layers: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the number of each layer that has a table, and that."""
    for name, table in tables.items():
        if not name.isdecimal() or len(name) > len(str(layers)) or int(name) >= layers:
            raise Undefined(f"per_layer_config has {short(name)}, which is no layer of {layers}")
        for key in table if isinstance(table, Mapping) else [table]:
            if key not in OF_LAYERS:
                known = " and ".join(OF_LAYERS)
                raise Undefined(f"per_layer_config.{name} has {short(key)}; supported are {known}")
        yield int(name), table


def _read_dim(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    tables, whole = raws
    return whole if tables is None else _of_tables(tables, "head_dim", values)


def _read_heads(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the tables; else a number that counts where keys are values, too."""
    tables, are_values, whole = raws
    if tables is not None:
        return _of_tables(tables, "num_key_value_heads", values)
    return whole if are_values and whole is not None else values["local_kv_heads"]


def _write_heads(value: int, values: Values) -> Raws:
    if value == values["local_kv_heads"]:
        return None, None, None
    if _key_values(values["value_layers"], values) is not True:
        raise Unspellable
    return None, True, value


# --- values that are keys ------------------------------------------------------------------------


def _read_key_values(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read whether layers without a window have no projection of values, as shared ones have none.

    Those attend to keys and values of others.
    """
    own = values["n_layers"] - values["kv_shared_layers"]
    flags = _windows(values) if raws[0] else (True,) * values["n_layers"]
    return (*flags[: max(own, 0)], *(False,) * min(values["kv_shared_layers"], len(flags)))


def _key_values(flags: Flags | None, values: Values) -> bool | None:
    """Return whether all layers without a window have none; None where only some are so.

    Layers that attend to keys and values of others have none, whatever flags say.
    """
    own = slice(values["n_layers"] - values["kv_shared_layers"])
    if flags is None or all(flags[own]):
        return False
    return True if flags[own] == _windows(values)[own] else None


def _write_key_values(flags: Flags, values: Values) -> Raws:
    said = _key_values(flags, values)
    if said is None:
        raise Unspellable
    return (said,)


def _write_shared(value: int, values: Values) -> Raws:
    """Write how many; llama.cpp attends to the last two before them, by their place."""
    first, windows = values["n_layers"] - value, _windows(values)
    others = windows[first:]
    for is_local, place in ((True, first - 2), (False, first - 1)):
        if is_local in others and (place < 0 or windows[place] is not is_local):
            raise Unspellable
    return (value,)


# --- numbers of layers, listed where they differ -------------------------------------------------


def _listed(field: str, *, is_local: bool) -> Codec:
    """A number of layers with a window, or of those without; a list of all where they differ.

    ``field`` is that of the others.
    """

    def read(raws: Raws, values: Values) -> Any:  # noqa: ANN401
        (counts,) = raws
        if not isinstance(counts, list | tuple):
            return counts
        if len(counts) != values["n_layers"]:
            raise Undefined(f"{short(counts)} has not one number for each layer")
        own = [counts[layer] for layer in _of_kind(values, is_local=is_local)]
        own = own or [*counts]
        if any(count != own[0] for count in own):
            raise Undefined(f"{short(counts)} are several numbers for layers of one kind")
        return own[0]

    def write(value: int, values: Values) -> Raws:
        other = values[field]
        if other == value:
            return (value,)
        local, whole = (value, other) if is_local else (other, value)
        return ([local if flag else whole for flag in _windows(values)],)

    return Codec(read, write, ("int",), needs=WINDOWS, writes_with=(field,))


def _read_first(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    (widths,) = raws
    return widths[0] if isinstance(widths, list | tuple) and widths else widths


def _write_first(value: int, values: Values) -> Raws:
    widths = values["layer_widths"]
    return (value if widths is None else [*widths],)


def _always_listed(field: str) -> Codec:
    """The first number of a list, which is always written: that of ``field``, or all the same."""
    return Codec(
        _read_first,
        lambda value, values: ([*(values[field] or (value,) * values["n_layers"])],),
        ("int",),
        needs={"n_layers": NUMBER},
        writes_with=(field,),
    )


def _read_widths(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read one for each layer; null where all are the same."""
    (widths,) = raws
    if not isinstance(widths, list | tuple):
        return None
    if len(widths) != values["n_layers"]:
        raise Undefined(f"{short(widths)} has not one number for each layer")
    return None if all(width == widths[0] for width in widths) else widths


def _read_doubled(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read whether layers that have no keys of their own have an MLP twice as wide."""
    return _doubled(values) if raws[0] else None


def _doubled(values: Values) -> Widths | None:
    width: int = values["intermediate_size"]
    shared: int = values["kv_shared_layers"]
    layers: int = values["n_layers"]
    if not 0 < shared <= layers:
        return None
    return (width,) * (layers - shared) + (2 * width,) * shared


def _write_doubled(value: Widths | None, values: Values) -> Raws:
    if value is None:
        return (False,)
    if value != _doubled(values):
        raise Unspellable
    return (True,)


# --- windows, and positions of layers without ----------------------------------------------------


def _read_windows(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read a list, or all but every sixth; the last never has one."""
    flags = LAYER_CODECS["layer_types_or_period"].read([raws[0], 6], values)
    return [*flags[:-1], False] if isinstance(flags, list | tuple) and flags else flags


def _write_windows(flags: Flags, values: Values) -> Raws:
    if flags[-1]:
        raise Unspellable
    return LAYER_CODECS["layer_types_or_period"].write(flags, values)


def _read_pairs(raws: Raws, values: Values, usual: float) -> Any:  # noqa: ANN401
    """Read how many pairs are rotated from their share; all of them but with one scaling.

    The usual share is that of a table that says nothing.
    """
    kind, share, theta = raws
    dim = values["head_dim"]
    if kind is share is theta is None:
        share = usual
    elif kind in (None, "default") or share is None:
        share = 1.0
    elif kind != "proportional" and share != 1:
        raise Undefined(f"partial_rotary_factor = {short(share)} with rope_type {short(kind)}")
    if share > 1:
        raise Undefined(f"partial_rotary_factor = {short(share)} is more than 1")
    return int(share * dim // 2)


def _write_pairs(value: int, values: Values) -> Raws:
    """Write a share that so many pairs are read from, though a quotient is rounded.

    None of them are what half a pair comes to: a share is above 0.
    """
    dim = values["head_dim"]
    share = (2 * value or 1) / dim
    return None, share if int(share * dim // 2) == value else math.nextafter(share, 1.0), None


def _pairs(usual: float) -> Codec:
    return Codec(
        partial(_read_pairs, usual=usual),
        _write_pairs,
        ("count",),
        ("any", "float", "any"),
        {"head_dim": NUMBER},
    )


def _read_factor(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """Read what frequencies are divided by; nothing looks at it without a scaling."""
    kind, factor = raws
    if kind == "linear" and factor is None:
        raise Undefined("rope_type 'linear' needs a factor")
    return None if kind in (None, "default") or factor == 1 else factor


def _write_factor(value: float | None, _values: Values) -> Raws:
    if value == 1:
        raise Unspellable
    return None, value


SHAPES = {"n_layers": NUMBER, "kv_shared_layers": NUMBER}

SHAPE_CODECS: Mapping[str, Codec] = {
    "dim_without_window": Codec(
        _read_dim,
        lambda value, _: (None, value),
        ("int",),
        ("any", "int"),
        {**WINDOWS, "local_head_dim": NUMBER},
    ),
    "kv_heads_without_window": Codec(
        _read_heads,
        _write_heads,
        ("int",),
        ("any", "bool", "int"),
        {**WINDOWS, "kv_shared_layers": NUMBER, "local_kv_heads": NUMBER},
        writes_with=("value_layers",),
    ),
    "kv_heads_of_windows": _listed("n_kv_heads", is_local=True),
    "kv_heads_of_others": _listed("local_kv_heads", is_local=False),
    "keys_are_values": Codec(
        _read_key_values,
        _write_key_values,
        ("flags",),
        ("bool",),
        {**WINDOWS, "kv_shared_layers": NUMBER},
    ),
    "shared_by_place": Codec(
        lambda raws, _: raws[0],
        _write_shared,
        ("count",),
        ("count",),
        WINDOWS,
    ),
    "first_width": Codec(_read_first, _write_first, ("int",), writes_with=("layer_widths",)),
    "listed_width": _always_listed("layer_widths"),
    "listed_heads": _always_listed("layer_heads"),
    "first_heads": Codec(
        lambda raws, values: raws[1] if raws[0] is None else _read_first(raws[:1], values),
        lambda value, _: (None, value),
        ("int",),
        ("any", "any"),
    ),
    "width_of_each": Codec(
        _read_widths, lambda value, _: (None if value is None else [*value],), ("ints",)
    ),
    "wider_where_shared": Codec(
        _read_doubled,
        _write_doubled,
        ("ints",),
        ("bool",),
        {**SHAPES, "intermediate_size": NUMBER},
    ),
    "windows_but_in_last": Codec(_read_windows, _write_windows, ("flags",), ("any", "any")),
    "share_of_pairs": _pairs(usual=0.25),
    "half_or_share_of_pairs": _pairs(usual=0.5),
    "factor_of_rotation": Codec(_read_factor, _write_factor, ("float",), ("any", "float")),
}
