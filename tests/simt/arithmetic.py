"""Operators on values, as C++ on a GPU computes them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.simt.dtypes import Value, constant, is_float, uniform
from tests.simt.faults import KernelFault

Operator = Callable[[Value, Value], Value]


def _divisor(b: Value) -> None:
    if np.any(np.asarray(b) == 0):
        raise KernelFault("an integer is divided by zero")


def _floor_div(a: Value, b: Value) -> Value:
    _divisor(b)
    return a // b


def _floor_mod(a: Value, b: Value) -> Value:
    _divisor(b)
    return a % b


def _truncate_div(a: Value, b: Value) -> Value:
    _divisor(b)
    quotient = abs(a) // abs(b)
    return np.where((a < 0) != (b < 0), -quotient, quotient)


def _truncate_mod(a: Value, b: Value) -> Value:
    return a - b * _truncate_div(a, b)


# CUDA's fmin and fmax, which its max and min are for floats, prefer numbers to NaN.
FLOAT: dict[str, Operator] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": operator.truediv,
    "Min": np.fmin,
    "Max": np.fmax,
}
INTEGER: dict[str, Operator] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": _truncate_div,
    "Mod": _truncate_mod,
    "FloorDiv": _floor_div,
    "FloorMod": _floor_mod,
    "Min": np.minimum,
    "Max": np.maximum,
    "LShift": operator.lshift,
    "RShift": operator.rshift,
    "BitwiseAnd": operator.and_,
    "BitwiseOr": operator.or_,
    "BitwiseXor": operator.xor,
}
COMPARISON: dict[str, Operator] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}
# Whose results modulo a power of two follow from their operands modulo it.
MODULAR = [INTEGER[name] for name in ("Add", "Sub", "Mul", "BitwiseAnd", "BitwiseOr", "BitwiseXor")]
# Bytes of the narrowest type that C++ computes with.
REGISTER = 4
BINARY = {*FLOAT, *INTEGER, *COMPARISON}


def binary(name: str, dtype: np.dtype[Any]) -> Operator:
    """The operator ``name`` on operands of a type."""
    if name in COMPARISON:
        return _truth(COMPARISON[name], dtype)
    if is_float(dtype):
        return FLOAT[name]
    return _integer(INTEGER[name], dtype)


def _narrow(compute: Operator, dtype: np.dtype[Any], *, modular: bool) -> Operator:
    """Narrow results like C++ does for types below int: a store cuts them."""

    def apply(a: Value, b: Value) -> Value:
        if not modular:
            require_fit(a, dtype)
            require_fit(b, dtype)
        wide = np.asarray(compute(np.asarray(a, np.int64), np.asarray(b, np.int64)))
        return wide[()] if wide.ndim == 0 else wide

    return apply


def require_fit(value: Value, dtype: np.dtype[Any]) -> None:
    """Require that a type holds a computed value, where cutting it would matter."""
    array = np.asarray(value)
    if dtype.kind in "iu" and dtype.itemsize < REGISTER and array.dtype != dtype:
        limits = np.iinfo(dtype)
        if (wrong := (array < limits.min) | (array > limits.max)).any():
            raise KernelFault(f"a result in {dtype} does not fit it: {array[wrong].ravel()[0]}")


def _truth(compare: Operator, dtype: np.dtype[Any]) -> Operator:
    narrow = dtype.kind in "iu" and dtype.itemsize < REGISTER

    def apply(a: Value, b: Value) -> Value:
        if narrow:
            require_fit(a, dtype)
            require_fit(b, dtype)
        result = compare(a, b)
        return bool(result) if uniform(result) else result

    return apply


def _integer(compute: Operator, dtype: np.dtype[Any]) -> Operator:
    if dtype.itemsize < REGISTER and dtype.kind != "b":
        return _narrow(compute, dtype, modular=compute in MODULAR)

    def apply(a: Value, b: Value) -> Value:
        if uniform(a) and uniform(b):
            return constant(int(compute(a, b)), dtype)
        result = compute(a, b)
        return result if result.dtype == dtype else result.astype(dtype)

    return apply
