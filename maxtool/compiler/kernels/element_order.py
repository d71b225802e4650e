"""Comparisons of elements, NaN included, and folds of many elements into one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.kernel_builder import Expr, add

Combine: TypeAlias = Callable[[Expr, Expr], Expr]
# How two elements become one, and what changes nothing then, by type.
Fold: TypeAlias = tuple[Combine, Callable[[str], Expr]]


def maximum(x: Expr, y: Expr) -> Expr:
    """The greater; their sum, which is NaN, where the two have no order."""
    return T.Select(x < y, y, T.Select(y <= x, x, x + y))


def minimum(x: Expr, y: Expr) -> Expr:
    """The lesser; their sum, which is NaN, where the two have no order."""
    return T.Select(y < x, y, T.Select(x <= y, x, x + y))


def lowest(dtype: str) -> Expr:
    """Return the least value of a type."""
    return tirx.const(float("-inf"), dtype) if "float" in dtype else tirx.min_value(dtype)


def highest(dtype: str) -> Expr:
    """Return the greatest value of a type."""
    return tirx.const(float("inf"), dtype) if "float" in dtype else tirx.max_value(dtype)


COMBINE: dict[str, Fold] = {
    "all": (tirx.all, lambda dtype: tirx.const(True, dtype)),
    "any": (tirx.any, lambda kind: tirx.const(False, kind)),
    "max": (maximum, lowest),
    "min": (minimum, highest),
    "prod": (lambda left, right: left * right, lambda kind: tirx.const(1, kind)),
    "sum": (add, lambda kind: tirx.const(0, kind)),
}


def above(left: Expr, right: Expr, dtype: str) -> Expr:
    """Return whether ``left`` is greater, where NaN is greater than every number."""
    if "float" not in dtype:
        return left > right
    return tirx.any(left > right, tirx.all(tirx.isnan(left), tirx.Not(tirx.isnan(right))))


def equal(left: Expr, right: Expr, dtype: str) -> Expr:
    """Return whether neither is greater; "not above" would be simplified to "<="."""
    if "float" not in dtype:
        return left == right
    return tirx.any(left == right, tirx.all(tirx.isnan(left), tirx.isnan(right)))


def leads(op: str, left: Expr, right: Expr, dtype: str) -> Expr:
    """Return whether argmax or argmin prefers ``left`` to ``right``: NaN before every number."""
    if op == "argmax":
        return above(left, right, dtype)
    if "float" not in dtype:
        return left < right
    return tirx.any(left < right, tirx.all(tirx.isnan(left), tirx.Not(tirx.isnan(right))))
