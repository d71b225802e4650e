"""The formulas by which a value follows from others: what each takes, gives and is defined for.

Files say the operands, so that no formula may cost more than its result is worth: numbers stay
below :data:`LARGEST`, and there are flags for as many layers as a model may have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from maxtool.errors import ConfigurationError

Values = Mapping[str, Any]
Flags = tuple[bool, ...]
Kind = Literal["number", "flags"]

LARGEST = 1 << 63


class Undefined(ConfigurationError):
    """A formula has no result for its operands."""


@dataclass(frozen=True)
class Formula:
    """A row of the table.

    Attributes:
        count: How many operands there are; 0 for any number.
        apply: The result of the fields, and of the operands, none of them null.
        takes: What each operand is.
        gives: What the result is.
        reads: Fields that it looks at besides, all of them numbers.
    """

    count: int
    apply: Callable[..., Any]
    takes: Kind = "number"
    gives: Kind = "number"
    reads: tuple[str, ...] = ()


def applied(op: str, values: Values, operands: list[Any]) -> Any:  # noqa: ANN401
    """The result of a formula; None where an operand is null or a quotient has a rest.

    Args:
        op: A row of ``FORMULAS``.
        values: The fields known so far.
        operands: What it is given.

    Raises:
        Undefined: If there is no such number, or it is a larger one than any model needs.
        KeyError: If it needs a field that is not known.
    """
    if None in operands:
        return None
    try:
        result = FORMULAS[op].apply(values, *operands)
    except (ArithmeticError, ValueError) as error:
        raise Undefined(f"{op} of {_shown(operands)}: {error}") from None
    if isinstance(result, int | float) and not -LARGEST < result < LARGEST:
        raise Undefined(f"{op} of {_shown(operands)} is not below {LARGEST}")
    return result


def _shown(operands: list[Any]) -> str:
    text = ", ".join(map(repr, operands))
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- numbers -------------------------------------------------------------------------------------


def _quotient(_values: Values, left: float, right: float) -> float | None:
    quotient, rest = divmod(left, right)
    return None if rest else quotient


def _product(_values: Values, *factors: float) -> float:
    result: float = 1
    for factor in factors:
        result *= factor
        if not result < LARGEST:  # before whole numbers grow long
            break
    return result


def _longrope_attention(values: Values, context: float, original: float) -> float:
    """The factor by which LongRoPE multiplies cosines and sines, as transformers computes it."""
    factor = values.get("rope_factor") or context / original
    if factor <= 1 or original == 1:
        return 1.0
    return math.sqrt(1 + math.log(factor) / math.log(original))


# --- flags of layers -----------------------------------------------------------------------------


def period(count: int, every: int) -> Flags:
    """A flag for each of ``count`` layers: all but every ``every``-th."""
    return tuple((layer + 1) % every != 0 for layer in range(count))


def starting(count: int, first: int) -> Flags:
    """A flag for each of ``count`` layers: ``first`` and those after it, counted from 0."""
    return tuple(layer >= first for layer in range(count))


def _not(_values: Values, flags: Flags) -> Flags:
    return tuple(not flag for flag in flags)


LAYERS = ("n_layers",)
FORMULAS: Mapping[str, Formula] = {
    "quotient": Formula(2, _quotient),
    "product": Formula(0, _product),
    "sum": Formula(0, lambda _values, *parts: sum(parts)),
    "share": Formula(2, lambda _values, number, part: int(number * part)),
    "sqrt": Formula(1, lambda _values, number: math.sqrt(number)),
    "rsqrt": Formula(1, lambda _values, number: number**-0.5),
    "longrope_attention": Formula(2, _longrope_attention, reads=("rope_factor",)),
    "not": Formula(1, _not, takes="flags", gives="flags"),
    "period": Formula(
        1, lambda values, every: period(values["n_layers"], every), gives="flags", reads=LAYERS
    ),
    "from": Formula(
        1, lambda values, first: starting(values["n_layers"], first), gives="flags", reads=LAYERS
    ),
}
