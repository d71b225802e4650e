"""Which of two elements counts, NaN included, and folds of many elements into one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.builder import Expr, add

Combine: TypeAlias = Callable[[Expr, Expr], Expr]
# How two elements become one, and what changes nothing then, by type.
Fold: TypeAlias = tuple[Combine, Callable[[str], Expr]]


def maximum(x: Expr, y: Expr) -> Expr:
    """The greater; their sum, which is NaN, where the two have no order."""
    return T.Select(x < y, y, T.Select(y <= x, x, x + y))


def minimum(x: Expr, y: Expr) -> Expr:
    """The lesser; their sum, which is NaN, where the two have no order."""
    return T.Select(y < x, y, T.Select(x <= y, x, x + y))


def lowest(kind: str) -> Expr:
    """What no element of a type is below."""
    return tirx.const(float("-inf"), kind) if "float" in kind else tirx.min_value(kind)


def highest(kind: str) -> Expr:
    """What no element of a type is above."""
    return tirx.const(float("inf"), kind) if "float" in kind else tirx.max_value(kind)


COMBINE: dict[str, Fold] = {
    "all": (tirx.all, lambda kind: tirx.const(True, kind)),
    "any": (tirx.any, lambda kind: tirx.const(False, kind)),
    "max": (maximum, lowest),
    "min": (minimum, highest),
    "prod": (lambda one, two: one * two, lambda kind: tirx.const(1, kind)),
    "sum": (add, lambda kind: tirx.const(0, kind)),
}


def above(one: Expr, two: Expr, kind: str) -> Expr:
    """Whether ``one`` is greater, where NaN is greater than every number."""
    if "float" not in kind:
        return one > two
    return tirx.any(one > two, tirx.all(tirx.isnan(one), tirx.Not(tirx.isnan(two))))


def equal(one: Expr, two: Expr, kind: str) -> Expr:
    """Whether neither is greater; "not above" would be simplified to "<="."""
    if "float" not in kind:
        return one == two
    return tirx.any(one == two, tirx.all(tirx.isnan(one), tirx.isnan(two)))


def leads(op: str, one: Expr, two: Expr, kind: str) -> Expr:
    """Whether argmax or argmin means ``one`` rather than ``two``: NaN before every number."""
    if op == "argmax":
        return above(one, two, kind)
    if "float" not in kind:
        return one < two
    return tirx.any(one < two, tirx.all(tirx.isnan(one), tirx.Not(tirx.isnan(two))))
