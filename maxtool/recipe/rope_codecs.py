"""Codecs of rotary positions: bases that numbers stretch or lists say, factors of long texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxtool.recipe.codec_type import NUMBER, NUMBER_OR_NULL, Codec, Raws, Unspellable
from maxtool.recipe.expressions import Undefined, Values, is_number, same
from maxtool.recipe.field_codecs import FIELD_CODECS
from maxtool.recipe.keys import short

# What transformers calls each scaling.
KINDS = {"default": "none", "linear": "linear", "dynamic": "dynamic", "llama3": "llama3"}
KINDS |= {"yarn": "yarn", "longrope": "longrope"}
# Names in GGUF: llama.cpp loads no file that names another. Of a dynamic one the factor is written.
NAMED = {"none": None, "linear": "linear", "yarn": "yarn", "longrope": "longrope", "dynamic": None}


def _is_stretched(kind: object, alpha: object) -> bool:
    """Return whether a scaling that is called dynamic is one by a fixed ``alpha`` (Hunyuan)."""
    return kind == "dynamic" and is_number(alpha) and alpha != 0


def _read_kind(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """Read the scaling; one by a fixed number is none, since the base says it."""
    kind, alpha = raws
    if _is_stretched(kind, alpha):
        return "none"
    return KINDS.get(kind, kind) if isinstance(kind, str) else kind


def _write_kind(value: str, _values: Values) -> Raws:
    for name, own in KINDS.items():
        if own == value:
            return name, None
    raise Unspellable


def _read_named(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """Read a scaling that GGUF names, or the one whose factor is said without a name."""
    name, factor = raws
    if factor is None:
        return name
    if name not in (None, "dynamic"):
        raise Undefined(f"{short(name)} beside the factor of a dynamic scaling")
    return "dynamic"


def _write_named(value: str, _values: Values) -> Raws:
    if not isinstance(value, str) or value not in NAMED:
        raise Unspellable
    return NAMED[value], None


def _read_base(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the base, times ``alpha ** (dim / (dim - 2))`` where that stretches it."""
    kind, alpha, base = raws
    if not (_is_stretched(kind, alpha) and is_number(base)):
        return base
    dim = values["head_dim"]
    if dim <= 2 or alpha < 0:
        raise Undefined(f"alpha = {short(alpha)} with heads of {dim} elements")
    try:
        return float(base * alpha ** (dim / (dim - 2)))
    except OverflowError:
        raise Undefined(f"alpha = {short(alpha)} gives a base that is not finite") from None


def _read_long(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read null where long texts have the factor of short ones."""
    usual = values["rope_attention_factor"]
    return None if usual is not None and same(raws[0], usual) else raws[0]


def _read_linear(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """Read what positions are divided by: a number beside this scaling alone."""
    kind, factor = raws
    if kind not in (None, "default", "linear"):
        raise Undefined(f"{short(kind)} is not supported (default and linear are)")
    return factor if kind == "linear" else 1.0


def _write_linear(value: float, _values: Values) -> Raws:
    return ("default", None) if value == 1 else ("linear", value)


def _ntk(kind: object, factor: object) -> float:
    """The factor of an NTK scaling, 1 where there is none (GTE)."""
    if kind is None:
        return 1.0
    if kind != "ntk":
        raise Undefined(f"{short(kind)} is not supported (ntk is)")
    if not is_number(factor) or factor <= 0:
        raise Undefined(f"factor = {short(factor)} is not a positive number")
    return float(factor)


def _read_ntk_factor(raws: Raws, values: Values) -> float:
    """Read what all frequencies are divided by, beside the base that grows."""
    return float(_ntk(*raws) ** (2 / values["head_dim"]))


def _read_ntk_base(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """Read the base, times the factor."""
    kind, factor, base = raws
    return base * _ntk(kind, factor) if is_number(base) else base


def _factor_of(values: Values) -> float:
    """The factor that divides frequencies as the fields say."""
    return float(f"{(values['rope_factor'] or 1) ** (values['head_dim'] / 2):.12g}")


def _write_ntk_factor(value: float, values: Values) -> Raws:
    if value == 1:
        return (None, None)
    return "ntk", _factor_of({**values, "rope_factor": value})


def _read_rotated(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """Read which layers have a base that is not 0; flags may say the same, and no more."""
    bases, flags = raws
    if bases is None and isinstance(flags, list | tuple) and not all(flags):
        told = "transformers, which does not read these flags, rotates every layer"
        raise Undefined(f"{short(flags)} without a base for each layer: {told}")
    listed = flags if bases is None else bases
    if not isinstance(listed, list | tuple):
        return listed
    rotated = [each != 0 if is_number(each) else each for each in listed]
    if bases is not None and flags is not None and [bool(each) for each in flags] != rotated:
        raise Undefined(f"{short(bases)} and {short(flags)} disagree on which layers rotate")
    return rotated


def _write_rotated(flags: tuple[bool, ...], values: Values) -> Raws:
    return [values["rope_theta"] if flag else 0 for flag in flags], None


def _read_all_or_listed(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    return (True,) * values["n_layers"] if raws[0] is None else raws[0]


def _read_base_of_layers(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """Read the one base of all layers that rotate, of a list where there is one."""
    base, listed = raws
    if not isinstance(listed, list | tuple):
        return base
    bases = dict.fromkeys(each for each in listed if each != 0)
    if len(bases) > 1:
        raise Undefined(f"{short(listed)} has several bases (one, and 0 for none, are supported)")
    return next(iter(bases), base)


def _read_share(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the elements that are rotated: half of them where no key says even the base."""
    share, base = raws
    usual = 0.5 if base is None else 1.0
    return SHARE.read([usual if share is None else share], values)


def _if_windows(codec: Codec) -> Codec:
    """A number of layers with a window, null where there is none."""
    return Codec(
        read=lambda raws, values: (
            None if values["sliding_window"] is None else codec.read(raws, values)
        ),
        write=lambda value, values: (None,) if value is None else codec.write(value, values),
        types=codec.types,
        keys=codec.keys,
        needs={**codec.needs, "sliding_window": NUMBER_OR_NULL},
    )


SHARE = FIELD_CODECS["share_of_head"]
PLAIN = Codec(lambda raws, _: raws[0], lambda value, _: (value,), ("int", "float"))

ROPE_CODECS: Mapping[str, Codec] = {
    "half_or_share_of_head": Codec(
        read=_read_share,
        write=lambda value, values: (*SHARE.write(value, values), None),
        types=("int",),
        keys=("any", "any"),
        needs={"head_dim": NUMBER},
    ),
    "if_windows": _if_windows(PLAIN),
    "share_if_windows": _if_windows(SHARE),
    "rotated_by_base": Codec(
        read=_read_rotated,
        write=_write_rotated,
        types=("flags",),
        keys=("any", "any"),
        needs={"rope_theta": NUMBER},
    ),
    "all_or_listed": Codec(
        read=_read_all_or_listed,
        write=lambda flags, _: (None if all(flags) else list(flags),),
        types=("flags",),
    ),
    "base_of_layers": Codec(
        read=_read_base_of_layers,
        write=lambda value, _: (value, None),
        types=("float",),
        keys=("any", "any"),
    ),
    "long_mscale": Codec(
        read=_read_long,
        write=lambda value, values: (values["rope_attention_factor"] if value is None else value,),
        types=("float",),
        needs={"rope_attention_factor": NUMBER_OR_NULL},
    ),
    "stretched_scaling": Codec(
        read=_read_kind,
        write=_write_kind,
        types=("str",),
        keys=("any", "any"),
    ),
    "named_scaling": Codec(
        read=_read_named,
        write=_write_named,
        types=("str",),
        keys=("any", "any"),
    ),
    "stretched_base": Codec(
        read=_read_base,
        write=lambda value, _: (None, None, value),
        types=("float",),
        keys=("any", "any", "any"),
        needs={"head_dim": NUMBER},
    ),
    "linear_factor": Codec(_read_linear, _write_linear, ("float",), ("any", "any")),
    "ntk_factor": Codec(
        read=_read_ntk_factor,
        write=_write_ntk_factor,
        types=("float",),
        keys=("any", "any"),
        needs={"head_dim": NUMBER},
    ),
    "ntk_base": Codec(
        read=_read_ntk_base,
        # The factor's own field writes that.
        write=lambda value, values: (None, None, value / _factor_of(values)),
        types=("float",),
        keys=("any", "any", "any"),
        needs={"head_dim": NUMBER, "rope_factor": NUMBER},
    ),
}
