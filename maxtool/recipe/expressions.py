"""Values that follow from other fields: a literal, a field, or a formula, as TOML says them.

``{ quotient = ["hidden_size", "n_heads"] }`` is a formula over fields and numbers. Files say the
operands, so that no formula may cost more than its result is worth: numbers stay below
:data:`LARGEST`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from maxtool.errors import ConfigurationError
from maxtool.recipe.old_words import replaced

Values = Mapping[str, Any]
LARGEST = 1 << 63


class Undefined(ConfigurationError):
    """A value has no result for what it follows from."""


def _quotient(left: float, right: float) -> float | None:
    quotient, rest = divmod(left, right)
    return None if rest else quotient


# Name to number of operands, and function.
FORMULAS: Mapping[str, tuple[int, Callable[..., float | None]]] = {
    "quotient": (2, _quotient),
    "total": (2, lambda left, right: left + right),
    "product": (2, lambda left, right: left * right),
    "sqrt": (1, math.sqrt),
    "rsqrt": (1, lambda number: number**-0.5),
}
KNOWN = ", ".join(["field", *FORMULAS])


@dataclass(frozen=True)
class Expression:
    """A literal, a field, or a formula over operands."""

    op: str  # "value", "field", or a row of FORMULAS
    operands: tuple[Any, ...]  # the literal; the field; or fields and numbers

    def fields(self) -> Iterator[str]:
        """The fields it needs."""
        if self.op != "value":
            yield from (operand for operand in self.operands if isinstance(operand, str))


def literal(value: object) -> Expression:
    """The expression that stands for ``value``; a list as a tuple."""
    return Expression("value", (tuple(value) if isinstance(value, list) else value,))


NULL = literal(None)


def parse(value: object) -> Expression:
    """The expression that a value of a TOML file stands for; ValueError for any other table."""
    if not isinstance(value, dict):
        return literal(value)
    if old := "; ".join(filter(None, map(replaced, value))):
        raise ValueError(old)
    ((op, operands),) = value.items() if len(value) == 1 else [("", None)]
    listed = operands if isinstance(operands, list) else [operands]
    if op == "field" and len(listed) == 1 and isinstance(listed[0], str):
        return Expression("field", (listed[0],))
    if op not in FORMULAS:
        raise ValueError(f"a default is a value or one of {KNOWN}")
    count = FORMULAS[op][0]
    if len(listed) != count:
        raise ValueError(f"{op} takes {count} operands, found {listed!r}")
    for operand in listed:
        _check_operand(operand)
    return Expression(op, tuple(listed))


def _check_operand(value: object) -> None:
    if isinstance(value, str):
        return
    if not is_number(value):
        raise ValueError(f"{value!r} is neither a field nor a number")
    if not 0 < value < LARGEST:
        raise ValueError(f"{value!r} is not an operand; numbers are positive, and below {LARGEST}")


def evaluate(expression: Expression, values: Values) -> Any:  # noqa: ANN401
    """The value of ``expression``; None where an operand is null or a quotient has a rest.

    Undefined if there is no such number, or it is a larger one than any model needs; KeyError if
    it needs a field that is not known.
    """
    if expression.op == "value":
        return expression.operands[0]
    operands = [values[x] if isinstance(x, str) else x for x in expression.operands]
    if expression.op == "field":
        return operands[0]
    return None if None in operands else _applied(expression.op, operands)


def _applied(op: str, operands: list[Any]) -> float | None:
    shown = ", ".join(map(repr, operands))
    try:
        result = FORMULAS[op][1](*operands)
    except (ArithmeticError, ValueError) as error:
        raise Undefined(f"{op} of {shown}: {error}") from None
    if result is not None and not result < LARGEST:
        raise Undefined(f"{op} of {shown} is not below {LARGEST}")
    return result


def same(left: object, right: object) -> bool:
    """Return whether two values are equal, numbers as the float32 that GGUF keeps."""
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if is_number(left) and is_number(right):
        with np.errstate(over="ignore"):
            return left == right or bool(np.float32(left) == np.float32(right))
    return type(left) is type(right) and left == right


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether ``value`` is an integer or a float, and not a flag."""
    return isinstance(value, int | float) and not isinstance(value, bool)
