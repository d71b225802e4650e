"""Codecs of numbers and texts that are kept as others, or follow from other fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from maxtool.recipe.codec_type import NUMBER, NUMBER_OR_NULL, Codec, Raws, Unspellable
from maxtool.recipe.expressions import Undefined, Values, is_number, same
from maxtool.recipe.keys import short

Step = Callable[[float, Values], float]


def _number(read: Step, write: Step, needs: Sequence[str] = (), *, whole: bool = False) -> Codec:
    """A number that is kept as another one: ``write`` is the way back, up to rounding.

    ``whole`` says that a key's value without a fraction is written as an integer.
    """

    def decode(raws: Raws, values: Values) -> Any:  # noqa: ANN401
        (raw,) = raws
        if not (is_number(raw) and 0 < raw < math.inf):
            return raw
        try:
            return read(raw, values)
        except OverflowError:
            return math.inf  # which no type takes

    def encode(value: Any, values: Values) -> Raws:  # noqa: ANN401
        try:
            exact = write(value, values)
            near = [float(f"{exact:.{digits}g}") for digits in (6, 9, 12, 15, 17)]
            near.append(math.nextafter(exact, math.inf))
            alike = (
                number
                for number in near
                if same(number, exact) and same(read(number, values), value)
            )
            shortest = next(filter(math.isfinite, alike))
        except (ArithmeticError, StopIteration, TypeError):
            raise Unspellable from None
        return (int(shortest) if whole and shortest.is_integer() else shortest,)

    return Codec(decode, encode, ("int", "count", "float"), needs=dict.fromkeys(needs, NUMBER))


def _read_longrope(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read null where the key says what follows from the contexts."""
    implied = _longrope_attention(values)
    return None if implied is not None and same(raws[0], implied) else raws[0]


def _longrope_attention(values: Values) -> float | None:
    """The factor by which LongRoPE multiplies cosines and sines, as transformers computes it."""
    context, original = values["context_length"], values["rope_original_context"]
    if context is None or original is None:
        return None
    factor = values["rope_factor"] or context / original
    if factor <= 1 or original == 1:
        return 1.0
    try:
        return math.sqrt(1 + math.log(factor) / math.log(original))
    except (ArithmeticError, ValueError) as error:
        raise Undefined(f"no factor for a context of {original}: {error}") from None


def _attention_scale(deepest: int) -> Codec:
    """Gemma's scale of scores: the model of ``deepest`` layers ignores the size of its heads."""

    def usual(values: Values) -> float | None:
        width = values["head_dim"]
        if values["n_layers"] == deepest:
            width, rest = divmod(values["hidden_size"], values["n_heads"])
            if rest:
                return None
        return float(width**-0.5)

    def read(raws: Raws, values: Values) -> Any:  # noqa: ANN401
        scale = usual(values) if raws[0] is None else raws[0]
        if scale is None:
            width, heads = values["hidden_size"], values["n_heads"]
            raise Undefined(f"hidden_size = {width} is not a multiple of n_heads = {heads}")
        return scale

    return Codec(
        read=read,
        write=lambda value, values: (None if same(value, usual(values)) else value,),
        types=("float",),
        needs=dict.fromkeys(("n_layers", "hidden_size", "n_heads", "head_dim"), NUMBER),
    )


def _read_outside(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """The value outside of a table; alone inside of it, it says nothing."""
    outside, inside = raws
    if outside is not None and inside is not None and not same(inside, outside):
        raise Undefined(f"{short(outside)} outside of a table and {short(inside)} in it disagree")
    return outside


def _write_context(value: Any, values: Values) -> Raws:  # noqa: ANN401
    if not same(value, values["context_length"]):
        raise Unspellable
    return (None,)


def _write_mscale(value: Any, values: Values) -> Raws:  # noqa: ANN401
    """Write nothing for 1, or where the other factor does not make it count."""
    if values["rope_mscale_all_dim"] is not None and not same(value, 1.0):
        raise Unspellable
    return ()


def listed(spellings: Mapping[Any, Raws]) -> Callable[[Any, Values], Raws]:
    """The keys' values for each of the field's; no other has a spelling."""

    def write(value: Any, _values: Values) -> Raws:  # noqa: ANN401
        if value not in spellings:
            raise Unspellable
        return spellings[value]

    return write


def _write_mup(value: Any, values: Values) -> Raws:  # noqa: ANN401
    scales = {False: 1.0, True: values["hidden_size"] ** 0.5}
    for switch, scale in scales.items():
        if same(value, scale):
            return (switch,)
    raise Unspellable


def _read_share(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the share of a head that is rotated, or where there is none how many elements."""
    share, rotated = raws
    return rotated if share is None else int(share * values["head_dim"])


def _read_both_shares(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the share of a head that is rotated, which the number of elements must agree with."""
    told, share = raws
    rotated = int(share * values["head_dim"])
    if told is not None and told != rotated:
        raise Undefined(f"{short(told)} rotated elements of a head, where its share says {rotated}")
    return rotated


# --- LFM2 ----------------------------------------------------------------------------------------

MOST_WIDTH = 1 << 31


def _read_adjusted(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """Read a width that is a third less and rounded up, as transformers has it, or as it stands."""
    switch, factor, multiple, first, width = raws
    width = width if first is None else first
    if switch is False or not is_number(width):
        return width
    factor = 1.0 if factor is None else factor
    if not (abs(width) < MOST_WIDTH and factor * abs(width) < MOST_WIDTH):
        raise Undefined(f"{short(width)} times {short(factor)} is no width")
    adjusted = int(factor * int(2 * width / 3))
    multiple = 256 if multiple is None else multiple
    return -(-adjusted // multiple) * multiple


def _read_heads(raws: Raws, _values: Values) -> Any:  # noqa: ANN401
    """Read the number that all layers have in which it is not 0; null where it is everywhere."""
    (counts,) = raws
    if not isinstance(counts, list | tuple):
        return counts
    several = {short(count): count for count in counts if count != 0}
    if len(several) > 1:
        raise Undefined(f"{short(counts)} are several numbers for layers, of which one is read")
    return next(iter(several.values()), None)


def _in_layers(flags: str) -> Codec:
    """A number that some layers have, kept as a list with 0 for the others, by their flags."""

    def write(value: int, values: Values) -> Raws:
        listed = values[flags] or (True,) * values["n_layers"]
        return ([value if flag else 0 for flag in listed],)

    return Codec(_read_heads, write, ("int",), needs={"n_layers": NUMBER}, writes_with=(flags,))


# --- Falcon --------------------------------------------------------------------------------------


def _read_falcon_block(raws: Raws, _values: Values) -> str:
    new, norms, parallel = raws
    if new:
        return "parallel_shared" if norms == 1 else "parallel"
    return "pre" if parallel is False else "parallel_shared"


FALCON_BLOCKS: Mapping[str, Raws] = {
    "parallel_shared": (True, 1, None),
    "parallel": (True, None, None),
    "pre": (None, None, False),
}


def _read_falcon_heads(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    """Read the number, which means nothing in the older form: a flag decides there."""
    new, heads, multi_query = raws
    if new:
        return values["n_heads"] if heads is None else heads
    return values["n_heads"] if multi_query is False else 1


def _write_falcon_heads(value: int, values: Values) -> Raws:
    """Write the number in the newer form, the flag in the older one, which ``pre`` is."""
    if values["block"] != "pre":
        return True, value, None
    if value not in (1, values["n_heads"]):
        raise Unspellable
    return None, None, value != values["n_heads"]


def _read_final_norm(raws: Raws, _values: Values) -> bool:
    """Read whether OPT has a last norm: where norms come before, unless a switch removes it."""
    before, removed = raws
    return before is not False and removed is not True


def _write_final_norm(value: bool, values: Values) -> Raws:
    before = values["block"] == "pre"
    if value and not before:
        raise Unspellable
    return before, before and not value


def _write_multi_query(value: int, values: Values) -> Raws:
    """Write whether there is one key head alone; the number, which means nothing, follows it."""
    if value not in (1, values["n_heads"]):
        raise Unspellable
    return value == 1, value


def _write_paired(value: Any, values: Values) -> Raws:  # noqa: ANN401
    if value is not None and not values["rope_mscale_all_dim"]:
        raise Unspellable
    return (value,)


FIELD_CODECS: Mapping[str, Codec] = {
    "reciprocal": _number(lambda x, _: 1 / x, lambda y, _: 1 / y),
    "rsqrt": _number(lambda x, _: x**-0.5, lambda y, _: y**-2, whole=True),
    "tenfold": _number(lambda x, _: 10 * x, lambda y, _: y / 10),
    "share_of_head": _number(
        lambda x, values: int(x * values["head_dim"]),
        lambda y, values: y / values["head_dim"],
        ["head_dim"],
    ),
    "position_rows": _number(
        lambda x, values: x - values["position_offset"],
        lambda y, values: y + values["position_offset"],
        ["position_offset"],
        whole=True,
    ),
    "after_padding": Codec(
        read=lambda _raws, values: values["pad_token_id"] + 1,
        write=lambda _value, _values: (),
        types=("int", "count"),
        keys=(),
        needs={"pad_token_id": NUMBER},
    ),
    "zero_is_null": Codec(
        read=lambda raws, _: None if same(raws[0], 0) else raws[0],
        write=lambda value, _: (0 if value is None else value,),
        types=("int", "float"),
    ),
    "unscaled_attention": Codec(
        read=lambda raws, _: 1.0 if raws[0] is False else None,
        write=listed({None: (None,), 1.0: (False,)}),
        types=("float",),
        keys=("bool",),
    ),
    "gemma2_attention_scale": _attention_scale(deepest=46),
    "gemma3_attention_scale": _attention_scale(deepest=62),
    "longrope_attention": Codec(
        read=_read_longrope,
        write=lambda value, values: (_longrope_attention(values) if value is None else value,),
        types=("float",),
        needs={
            "context_length": NUMBER,
            "rope_original_context": NUMBER_OR_NULL,
            "rope_factor": NUMBER_OR_NULL,
        },
    ),
    "whole_context": Codec(
        read=lambda _raws, values: values["context_length"],
        write=_write_context,
        types=("int",),
        needs={"context_length": NUMBER},
    ),
    "share_or_rotary_dim": Codec(
        read=_read_share,
        write=lambda value, values: (value / values["head_dim"], None),
        types=("int",),
        keys=("float", "int"),
        needs={"head_dim": NUMBER},
    ),
    "rotary_dim_and_share": Codec(
        read=_read_both_shares,
        write=lambda value, values: (value, value / values["head_dim"]),
        types=("int",),
        keys=("int", "float"),
        needs={"head_dim": NUMBER},
    ),
    "mup_embedding": Codec(
        read=lambda raws, values: values["hidden_size"] ** 0.5 if raws[0] else 1.0,
        write=_write_mup,
        types=("float",),
        keys=("bool",),
        needs={"hidden_size": NUMBER},
    ),
    "adjusted_width": Codec(
        read=_read_adjusted,
        write=lambda value, _: (False, None, None, None, value),
        types=("int",),
        keys=("bool", "float", "int", "any", "any"),
    ),
    "heads_of_layers": _in_layers("attention_layers"),
    "widths_of_layers": _in_layers("mlp_layers"),
    "paired_mscale": Codec(
        # Transformers takes no notice of it without the other factor.
        read=lambda raws, values: raws[0] if values["rope_mscale_all_dim"] else None,
        write=_write_paired,
        types=("float",),
        needs={"rope_mscale_all_dim": NUMBER_OR_NULL},
    ),
    "unit_mscale": Codec(
        read=lambda _raws, values: None if values["rope_mscale_all_dim"] is None else 1.0,
        write=_write_mscale,
        types=("float",),
        keys=(),
        needs={"rope_mscale_all_dim": NUMBER_OR_NULL},
    ),
    "outside_table": Codec(
        read=_read_outside,
        write=lambda value, _: (value, None),
        types=("int", "float"),
        keys=("any", "any"),
    ),
    "said_twice": Codec(
        # Of two keys that are both written the first counts.
        read=lambda raws, _: raws[1] if raws[0] is None else raws[0],
        write=lambda value, _: (value, value),
        types=("int",),
        keys=("any", "any"),
    ),
    "window_if_switched": Codec(
        read=lambda raws, _: raws[1] if raws[0] else None,
        write=lambda value, _: (None, None) if value is None else (True, value),
        types=("int",),
        keys=("bool", "any"),
    ),
    "negated": Codec(
        read=lambda raws, _: None if raws[0] is None else not raws[0],
        write=lambda value, _: (not value,),
        types=("bool",),
        keys=("bool",),
    ),
    "opt_final_norm": Codec(
        read=_read_final_norm,
        write=_write_final_norm,
        types=("bool",),
        keys=("bool", "bool"),
        writes_with=("block",),
    ),
    "multi_query": Codec(
        read=lambda raws, values: values["n_heads"] if raws[0] is False else 1,
        write=_write_multi_query,
        types=("int",),
        keys=("bool", "any"),
        needs={"n_heads": NUMBER},
    ),
    "falcon_block": Codec(
        _read_falcon_block, listed(FALCON_BLOCKS), ("str",), ("bool", "count", "bool")
    ),
    "falcon_kv_heads": Codec(
        read=_read_falcon_heads,
        write=_write_falcon_heads,
        types=("int",),
        keys=("bool", "any", "bool"),
        needs={"n_heads": NUMBER},
        writes_with=("block",),
    ),
}
