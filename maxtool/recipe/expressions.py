"""Values that follow from other fields: a closed set of formulas, as TOML says them.

``{ quotient = ["hidden_size", "n_heads"] }`` is a formula over fields. Operands are fields by name,
numbers, and formulas. ``{ by = FIELD, VALUE = ..., else = ... }`` chooses by a field's value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Expression:
    """A literal, a field, a choice, or a formula over operands.

    Attributes:
        op: "value", "field", "by", or a row of ``FORMULAS``.
        operands: The literal; the field; for "by" the field, its cases and what holds for any other
            value; for a formula its operands, expressions themselves.
    """

    op: str
    operands: tuple[Any, ...]

    def fields(self) -> Iterator[str]:
        """The fields it needs."""
        if self.op in ("field", "by"):
            yield self.operands[0]
        for operand in self.operands:
            if isinstance(operand, Expression):
                yield from operand.fields()
            elif isinstance(operand, dict):
                yield from (name for case in operand.values() for name in case.fields())


def literal(value: object) -> Expression:
    """The expression that stands for ``value``; a list as a tuple."""
    return Expression("value", (tuple(value) if isinstance(value, list) else value,))


NULL = literal(None)


def parse(value: object) -> Expression:
    """The expression that a value of a TOML file stands for.

    Raises:
        ValueError: If it is a table that says none.
    """
    return _table(value) if isinstance(value, dict) else literal(value)


def evaluate(expression: Expression, values: Values) -> Any:  # noqa: ANN401
    """What ``expression`` stands for; None where an operand is null or a quotient has a rest.

    Raises:
        KeyError: If it needs a field that is not known.
    """
    if expression.op == "value":
        return expression.operands[0]
    if expression.op == "field":
        return values[expression.operands[0]]
    if expression.op == "by":
        field, cases, other = expression.operands
        return evaluate(cases.get(str(values[field]), other), values)
    operands = [evaluate(operand, values) for operand in expression.operands]
    return None if None in operands else FORMULAS[expression.op].apply(values, *operands)


def same(left: object, right: object) -> bool:
    """Whether two values are equal, numbers as the float32 that GGUF keeps."""
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if _number(left) and _number(right):
        with np.errstate(over="ignore"):
            return left == right or bool(np.float32(left) == np.float32(right))  # type: ignore[arg-type]
    return type(left) is type(right) and left == right


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def period(count: int, every: int) -> tuple[bool, ...]:
    """A flag for each of ``count`` layers: all but every ``every``-th."""
    return tuple((layer + 1) % every != 0 for layer in range(count))


def starting(count: int, first: int) -> tuple[bool, ...]:
    """A flag for each of ``count`` layers: ``first`` and those after it, counted from 0."""
    return tuple(layer >= first for layer in range(count))


# --- the formulas --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Formula:
    """A row of the table: how many operands there are (0 for any number), and what is computed."""

    count: int
    apply: Callable[..., Any]


def _quotient(_values: Values, left: float, right: float) -> float | None:
    quotient, rest = divmod(left, right)
    return None if rest else quotient


def _longrope_attention(values: Values, context: int, original: int) -> float:
    """What LongRoPE multiplies cosines and sines by, as transformers computes it."""
    factor = values.get("rope_factor") or context / original
    if factor <= 1 or original == 1:
        return 1.0
    return math.sqrt(1 + math.log(factor) / math.log(original))


FORMULAS: Mapping[str, Formula] = {
    "quotient": Formula(2, _quotient),
    "product": Formula(0, lambda _values, *factors: math.prod(factors)),
    "sum": Formula(0, lambda _values, *parts: sum(parts)),
    "share": Formula(2, lambda _values, number, part: int(number * part)),
    "sqrt": Formula(1, lambda _values, number: math.sqrt(number)),
    "rsqrt": Formula(1, lambda _values, number: number**-0.5),
    "not": Formula(1, lambda _values, flags: tuple(not flag for flag in flags)),
    "period": Formula(1, lambda values, every: period(values["n_layers"], every)),
    "from": Formula(1, lambda values, first: starting(values["n_layers"], first)),
    "longrope_attention": Formula(2, _longrope_attention),
}
KNOWN = ", ".join(["field", "by", *FORMULAS])


def _table(table: Mapping[str, Any]) -> Expression:
    if "by" in table:
        return _choice(table)
    if len(table) != 1:
        raise ValueError(f"a default is a value or one of {KNOWN}")
    ((op, operands),) = table.items()
    listed = operands if isinstance(operands, list) else [operands]
    if op == "field" and len(listed) == 1 and isinstance(listed[0], str):
        return Expression("field", (listed[0],))
    if op not in FORMULAS:
        raise ValueError(f"a default is a value or one of {KNOWN}")
    count = FORMULAS[op].count
    if count and len(listed) != count:
        raise ValueError(f"{op} takes {count} operands, found {listed!r}")
    return Expression(op, tuple(map(_operand, listed)))


def _operand(value: Any) -> Expression:  # noqa: ANN401
    if isinstance(value, dict):
        return _table(value)
    if isinstance(value, str):
        return Expression("field", (value,))
    if not _number(value):
        raise ValueError(f"{value!r} is neither a field nor a number nor a formula")
    if value <= 0:
        raise ValueError(f"{value!r} is no operand; numbers are positive")
    return literal(value)


def _choice(table: Mapping[str, Any]) -> Expression:
    if not isinstance(table["by"], str) or "else" not in table:
        raise ValueError("'by' takes a field, and needs 'else'")
    cases = {key: parse(value) for key, value in table.items() if key not in ("by", "else")}
    return Expression("by", (table["by"], cases, parse(table["else"])))
