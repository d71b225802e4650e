"""Values that follow from other fields: a closed set of formulas, as TOML says them.

``{ quotient = ["hidden_size", "n_heads"] }`` is a formula over fields. Operands are fields by name,
numbers, and formulas. ``{ by = FIELD, VALUE = ..., else = ... }`` chooses by a field's value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxtool.recipe.formulas import FORMULAS, LARGEST, Values, applied


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

    @property
    def inner(self) -> Iterator[Expression]:
        """The expressions that it is made of."""
        for operand in self.operands:
            if isinstance(operand, Expression):
                yield operand
            elif isinstance(operand, dict):
                yield from operand.values()

    def fields(self) -> Iterator[str]:
        """The fields it needs."""
        if self.op in ("field", "by"):
            yield self.operands[0]
        for expression in self.inner:
            yield from expression.fields()


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
        Undefined: If a formula has no result for these values.
    """
    if expression.op == "value":
        return expression.operands[0]
    if expression.op == "field":
        return values[expression.operands[0]]
    if expression.op == "by":
        field, cases, other = expression.operands
        return evaluate(cases.get(str(values[field]), other), values)
    operands = [evaluate(operand, values) for operand in expression.operands]
    return applied(expression.op, values, operands)


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


MAX_DEPTH = 16
KNOWN = ", ".join(["field", "by", *FORMULAS])


def _table(table: Mapping[str, Any], depth: int = 1) -> Expression:
    if depth > MAX_DEPTH:
        raise ValueError(f"formulas are at most {MAX_DEPTH} deep")
    if "by" in table:
        return _choice(table, depth)
    if len(table) != 1:
        raise ValueError(f"a default is a value or one of {KNOWN}")
    ((op, operands),) = table.items()
    listed = operands if isinstance(operands, list) else [operands]
    if op == "field" and len(listed) == 1 and isinstance(listed[0], str):
        return Expression("field", (listed[0],))
    if op not in FORMULAS:
        raise ValueError(f"a default is a value or one of {KNOWN}")
    count = FORMULAS[op].count
    if not listed or (count and len(listed) != count):
        raise ValueError(f"{op} takes {count or 'some'} operands, found {listed!r}")
    return Expression(op, tuple(_operand(one, depth) for one in listed))


def _operand(value: Any, depth: int) -> Expression:  # noqa: ANN401
    if isinstance(value, dict):
        return _table(value, depth + 1)
    if isinstance(value, str):
        return Expression("field", (value,))
    if not _number(value):
        raise ValueError(f"{value!r} is neither a field nor a number nor a formula")
    if not 0 < value < LARGEST:
        raise ValueError(f"{value!r} is not an operand; numbers are positive, and below {LARGEST}")
    return literal(value)


def _choice(table: Mapping[str, Any], depth: int) -> Expression:
    if not isinstance(table["by"], str) or "else" not in table:
        raise ValueError("'by' takes a field, and needs 'else'")
    cases = {key: _case(value, depth) for key, value in table.items() if key not in ("by", "else")}
    return Expression("by", (table["by"], cases, _case(table["else"], depth)))


def _case(value: Any, depth: int) -> Expression:  # noqa: ANN401
    return _table(value, depth + 1) if isinstance(value, dict) else literal(value)
