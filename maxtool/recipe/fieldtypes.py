"""Types of a recipe's fields: which values each of them takes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from maxtool.recipe.expressions import is_number

MAX_INT = 1 << 40


def typed(kind: str, value: Any, layers: int | None = None) -> Any:  # noqa: ANN401
    """``value`` as a type has it; None for flags that are all set, as no flags at all mean.

    ValueError if it does not fit; it says what is needed. ``layers`` is their number, if known.
    """
    good = TYPES[kind](value)
    if good is None:
        raise ValueError(NEEDS[kind])
    if kind != "flags":
        return good
    if layers is not None and len(good) != layers:
        raise ValueError(f"one flag for each of {layers} layers, but of {len(good)}")
    return None if all(good) else good


def _float(value: Any) -> float | None:  # noqa: ANN401
    return float(value) if is_number(value) and 0 < value <= sys.float_info.max else None


def _real(value: Any) -> float | None:  # noqa: ANN401
    return float(value) if is_number(value) and abs(value) <= sys.float_info.max else None


def _int_from(first: int) -> Callable[[Any], int | None]:
    return lambda value: value if type(value) is int and first <= value < MAX_INT else None


def _exactly(kind: type) -> Callable[[Any], Any]:
    return lambda value: value if type(value) is kind else None


def _each(read: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...] | None]:
    def listed(value: Any) -> tuple[Any, ...] | None:  # noqa: ANN401
        if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str) or not len(value):
            return None
        items = tuple(map(read, value))
        return None if None in items else items

    return listed


# Each gives the value as the type has it, or None where it does not fit.
TYPES: Mapping[str, Callable[[Any], Any]] = {
    "int": _int_from(1),
    "count": _int_from(0),
    "float": _float,
    "bool": _exactly(bool),
    "str": _exactly(str),
    "flags": _each(lambda flag: bool(flag) if flag in (0, 1) else None),
    "ints": _each(_int_from(1)),
    "counts": _each(_int_from(0)),
    "floats": _each(_float),
    "reals": _each(_real),
    "texts": _each(_exactly(str)),
    "bools": _each(_exactly(bool)),
}
NEEDS: Mapping[str, str] = {
    "int": "a positive integer",
    "count": "an integer from 0 up",
    "float": "a positive number",
    "bool": "true or false",
    "str": "a text",
    "flags": "a list of flags",
    "ints": "a list of positive integers",
    "counts": "a list of integers from 0 up",
    "floats": "a list of positive numbers",
    "reals": "a list of numbers",
    "texts": "a list of texts",
    "bools": "a list of truth values",
}
