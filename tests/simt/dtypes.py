"""TVM's types as NumPy's, and the conversions between them as a GPU does them."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from tests.simt.faults import Unsupported

# What an expression evaluates to: a Python int or bool or a NumPy float where all threads agree;
# otherwise an array [threads], or [elements, threads] (or [elements, 1]) for vectors.
Value = Any
Array = np.ndarray[Any, Any]

SPECIAL: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}


@cache
def split(name: str) -> tuple[np.dtype[Any], int]:
    """Element type and number of elements of ``float32x4`` and the like."""
    scalar, _, lanes = name.partition("x")
    return _element(scalar), int(lanes or 1)


@cache
def _element(name: str) -> np.dtype[Any]:
    if name in SPECIAL:
        return SPECIAL[name]
    try:
        result = np.dtype(name)
    except TypeError:
        raise Unsupported(f"type {name}") from None
    return result


def type_of(expression: Any) -> tuple[np.dtype[Any], int]:
    """Element type and number of elements of an expression."""
    dtype = getattr(expression.ty, "dtype", None)
    if dtype is None:
        raise Unsupported(f"a value of type {expression.ty}: {expression}")
    return split(str(dtype))


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether it is a floating point type, bfloat16 included."""
    return dtype.kind == "f" or dtype == SPECIAL["bfloat16"]


def wrap(value: int, dtype: np.dtype[Any]) -> int:
    """A Python integer modulo the range of an integer type."""
    bits = dtype.itemsize * 8
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype.kind == "i" and value >> (bits - 1) else value


def constant(value: Any, dtype: np.dtype[Any]) -> Value:
    """A value that all threads agree on."""
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind in "iu":
        return wrap(int(value), dtype)
    return dtype.type(value)


def uniform(value: Value) -> bool:
    """Return whether all threads agree on it (a vector of any kind counts as varying)."""
    return not isinstance(value, np.ndarray)


def cast(value: Value, source: np.dtype[Any], target: np.dtype[Any]) -> Value:
    """Convert: to the nearest even among floats, towards zero and saturating to integers."""
    if source == target:
        return value
    array = np.asarray(value, source)
    result = _saturated(array, target) if _truncates(source, target) else array.astype(target)
    return constant(result[()], target) if uniform(value) else result


def _truncates(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    return is_float(source) and target.kind in "iu"


def _saturated(array: Array, target: np.dtype[Any]) -> Array:
    """Saturate like ``cvt.rzi``: to the nearest integer there is, and 0 for NaN."""
    limits = np.iinfo(target)
    wide = np.nan_to_num(np.trunc(array.astype(np.float64)), nan=0.0)
    inside = np.clip(wide, limits.min, limits.max).astype(target)
    # 2^63 - 1 is not float64.
    result: Array = np.where(wide >= float(limits.max), target.type(limits.max), inside)
    return result


def reinterpret(value: Value, source: np.dtype[Any], target: np.dtype[Any], lanes: int) -> Value:
    """The same bits as another type; ``lanes`` is the number of elements of the result."""
    array = np.asarray(value, source)
    if array.ndim < 2 and lanes == 1 and source.itemsize == target.itemsize:
        return constant(array.view(target)[()], target) if array.ndim == 0 else array.view(target)
    rows = np.ascontiguousarray(np.atleast_2d(array).T).view(target)
    if lanes > 1:
        return rows.T
    return constant(rows[0, 0], target) if array.ndim == 0 else rows[:, 0]
