"""How a key's value becomes a field's, and a field's value a key's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from maxtool.recipe.expressions import same
from maxtool.recipe.formulas import Undefined, Values, period, starting
from maxtool.recipe.keys import short
from maxtool.recipe.schema import Dialect, Field, Source, Spelling

MAX_LAYERS = 1 << 16


class Unspellable(ValueError):
    """A dialect has no way to say a value."""


# --- numbers that are kept as others -------------------------------------------------------------


@dataclass(frozen=True)
class Conversion:
    """A number that is kept as another one.

    Attributes:
        read: The field's value from the spelled one and the other field, if it takes one.
        write: The way back, up to rounding.
        takes_field: Whether it takes another field.
        whole: Whether a spelled value without a fraction is an integer.
    """

    read: Callable[[float, float], float]
    write: Callable[[float, float], float]
    takes_field: bool = False
    whole: bool = False


CONVERSIONS: Mapping[str, Conversion] = {
    "reciprocal": Conversion(lambda x, _: 1 / x, lambda y, _: 1 / y),
    "rsqrt": Conversion(lambda x, _: x**-0.5, lambda y, _: y**-2, whole=True),
    "times": Conversion(lambda x, other: int(x * other), lambda y, other: y / other, True),
    "less": Conversion(lambda x, other: x - other, lambda y, other: y + other, True, whole=True),
}


def _convert(spelling: Spelling, raw: Any, values: Values) -> Any:  # noqa: ANN401
    if spelling.convert is None or not _positive(raw):
        return raw
    name, field = spelling.convert
    other = values[field] if field else 1
    if other is None:
        raise Undefined(f"{short(raw)} is relative to {field}, which is null")
    try:
        return CONVERSIONS[name].read(raw, other)
    except OverflowError:
        return math.inf  # which no type takes


def _converted_back(spelling: Spelling, value: float, values: Values) -> float:
    """The shortest number that is read as ``value``; Unspellable where there is none."""
    if spelling.convert is None:
        return value
    name, field = spelling.convert
    row, other = CONVERSIONS[name], values[field] if field else 1
    if other is None:
        raise Unspellable
    try:
        exact = row.write(value, other)
        near = [float(f"{exact:.{digits}g}") for digits in (6, 9, 12, 15, 17)]
        near.append(math.nextafter(exact, math.inf))
        found = (number for number in near if same(row.read(number, other), value))
        number = next(filter(math.isfinite, found))
    except (ArithmeticError, StopIteration):
        raise Unspellable from None
    return int(number) if row.whole and number.is_integer() else number


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


# --- reading -------------------------------------------------------------------------------------


def meaning(spelling: Spelling, source: Source, raw: Any, values: Values) -> Any:  # noqa: ANN401
    """What a key's value says of a field; the value itself where it says nothing."""
    if source.kind in PATTERNS:
        return PATTERNS[source.kind].read(raw, values)
    if isinstance(raw, list | tuple):
        return type(raw)(_own(spelling, item) for item in raw)
    return _convert(spelling, _own(spelling, raw), values)


def _own(spelling: Spelling, raw: Any) -> Any:  # noqa: ANN401
    """The recipe's own value for a spelled one; the spelled one itself when there is none."""
    if spelling.values is None or type(raw) not in (str, int):
        return raw
    return spelling.values.get(str(raw), raw)  # the keys of a TOML table are texts, numbers too


def _read_period(raw: Any, values: Values) -> Any:  # noqa: ANN401
    return period(values["n_layers"], raw) if _count(raw) else raw


def _read_from(raw: Any, values: Values) -> Any:  # noqa: ANN401
    return starting(values["n_layers"], raw) if type(raw) is int and raw >= 0 else raw


def _read_except(raw: Any, values: Values) -> Any:  # noqa: ANN401
    """All layers but those listed, and of them every n-th: the pair (list, n), either null."""
    missing, every = raw
    missing, every = [] if missing is None else missing, 1 if every is None else every
    if not isinstance(missing, list | tuple) or not _count(every):
        return raw
    return tuple(
        layer not in missing and (layer + 1) % every == 0 for layer in range(values["n_layers"])
    )


def _count(value: object) -> bool:
    return type(value) is int and 0 < value <= MAX_LAYERS


# --- writing -------------------------------------------------------------------------------------


def spelled(field: Field, spelling: Spelling, dialect: Dialect, values: Values) -> dict[str, Any]:
    """The keys of one spelling that say a field's value.

    Raises:
        Unspellable: If they cannot.
    """
    source = spelling.first
    if source is None:
        raise Unspellable
    value = values[field.name]
    if field.type == "flags" and value is None:
        value = (True,) * values["n_layers"]
    if source.kind in PATTERNS:
        raws = PATTERNS[source.kind].write(value)
    else:
        raws = (_raw(field, spelling, dialect, value, values),)
    return dict(zip(source.keys, raws, strict=True)) | dict.fromkeys(spelling.also, raws[0])


def _raw(field: Field, spelling: Spelling, dialect: Dialect, value: Any, values: Values) -> Any:  # noqa: ANN401
    if field.type == "flags":
        items = [_spelled_item(spelling, item) for item in value]
        return [int(item) if item in (0, 1) and dialect == "hf" else item for item in items]
    if field.type == "floats":
        return list(value)
    return _converted_back(spelling, _spelled_item(spelling, value), values)


def _spelled_item(spelling: Spelling, value: Any) -> Any:  # noqa: ANN401
    if spelling.values is None:
        return value
    for text, own in spelling.values.items():
        if type(own) is type(value) and own == value:
            return int(text) if text.isdecimal() else text
    raise Unspellable


def _write_period(flags: tuple[bool, ...]) -> tuple[int]:
    for every in range(1, len(flags) + 2):
        if period(len(flags), every) == flags:
            return (every,)
    raise Unspellable


def _write_from(flags: tuple[bool, ...]) -> tuple[int]:
    first = flags.index(True) if True in flags else len(flags)
    if starting(len(flags), first) != flags:
        raise Unspellable
    return (first,)


def _write_except(flags: tuple[bool, ...]) -> tuple[list[int], int]:
    return [layer for layer, flag in enumerate(flags) if not flag], 1


@dataclass(frozen=True)
class Pattern:
    """Flags that a key says as a whole, rather than one by one."""

    read: Callable[[Any, Values], Any]
    write: Callable[[tuple[bool, ...]], tuple[Any, ...]]


PATTERNS: Mapping[str, Pattern] = {
    "period": Pattern(_read_period, _write_period),
    "from": Pattern(_read_from, _write_from),
    "except": Pattern(_read_except, _write_except),
}
