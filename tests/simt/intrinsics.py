"""Functions on numbers, by the names that TVM gives them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tests.simt.dtypes import Array, Value

_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)


def _rounded(function: Callable[..., Value]) -> Callable[..., Value]:
    """``function`` computed in float64 and rounded to the type of its first argument."""

    def apply(first: Value, *rest: Value) -> Value:
        dtype = np.asarray(first).dtype
        wide = (np.asarray(value).astype(np.float64) for value in (first, *rest))
        result = np.asarray(function(*wide), np.float64).astype(dtype)
        return result if isinstance(first, np.ndarray) or result.ndim else result[()]

    return apply


def _narrow(function: Callable[..., Value]) -> Callable[..., Value]:
    """``function`` in the type of its argument; bfloat16 through float32."""

    def apply(x: Value) -> Value:
        if np.asarray(x).dtype == ml_dtypes.bfloat16:
            return function(np.asarray(x).astype(np.float32)).astype(ml_dtypes.bfloat16)
        return function(x)

    return apply


def _round_away(x: Value) -> Value:
    """Round like C's ``round``: halves go away from zero."""
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _popcount(x: Value) -> Value:
    counts: Array = np.bitwise_count(np.asarray(x).view(f"u{np.asarray(x).dtype.itemsize}"))
    return counts.astype(np.int32)


ELEMENTWISE: dict[str, Callable[..., Value]] = {
    "tirx.exp": _narrow(np.exp),
    "tirx.exp2": _narrow(np.exp2),
    "tirx.exp10": _rounded(lambda x: 10.0**x),
    "tirx.log": _narrow(np.log),
    "prim.log2": _narrow(np.log2),
    "tirx.log2": _narrow(np.log2),
    "tirx.log10": _narrow(np.log10),
    "tirx.log1p": _narrow(np.log1p),
    "tirx.sqrt": _narrow(np.sqrt),
    "tirx.rsqrt": _rounded(lambda x: 1.0 / np.sqrt(x)),
    "tirx.tanh": _narrow(np.tanh),
    "tirx.sigmoid": _rounded(lambda x: 1.0 / (1.0 + np.exp(-x))),
    "tirx.erf": _rounded(lambda x: np.asarray(_erf(x), np.float64)),
    "tirx.sin": _narrow(np.sin),
    "tirx.cos": _narrow(np.cos),
    "tirx.tan": _narrow(np.tan),
    "tirx.asin": _narrow(np.arcsin),
    "tirx.acos": _narrow(np.arccos),
    "tirx.atan": _narrow(np.arctan),
    "tirx.sinh": _narrow(np.sinh),
    "tirx.cosh": _narrow(np.cosh),
    "tirx.asinh": _narrow(np.arcsinh),
    "tirx.acosh": _narrow(np.arccosh),
    "tirx.atanh": _narrow(np.arctanh),
    "tirx.atan2": _rounded(np.arctan2),
    "tirx.pow": _rounded(np.power),
    "tirx.fmod": _rounded(np.fmod),
    "tirx.fma": _rounded(lambda a, b, c: a * b + c),
    "tirx.hypot": _rounded(np.hypot),
    "tirx.copysign": _rounded(np.copysign),
    "tirx.floor": _narrow(np.floor),
    "prim.ceil": _narrow(np.ceil),
    "tirx.ceil": _narrow(np.ceil),
    "tirx.trunc": _narrow(np.trunc),
    "tirx.nearbyint": _narrow(np.rint),
    "tirx.round": _narrow(_round_away),
    "tirx.fabs": _narrow(np.abs),
    "tirx.isnan": np.isnan,
    "tirx.isinf": np.isinf,
    "tirx.isfinite": np.isfinite,
    "tirx.popcount": _popcount,
    "prim.likely": lambda x: x,
}

# Functions of CUDA's mathematics library that are called by their name in C++.
EXTERNAL: dict[str, Callable[..., Value]] = {
    f"{name}{suffix}": function
    for name, function in {
        "acos": _rounded(np.arccos),
        "asin": _rounded(np.arcsin),
        "atan": _rounded(np.arctan),
        "atanh": _rounded(np.arctanh),
        "cos": _rounded(np.cos),
        "erfc": _rounded(lambda x: np.asarray(_erfc(x), np.float64)),
        "fmod": _rounded(np.fmod),
        "log1p": _rounded(np.log1p),
        "pow": _rounded(np.power),
        "sin": _rounded(np.sin),
        "tanh": _narrow(np.tanh),
    }.items()
    for suffix in ("", "f")
}


def known(name: str) -> Callable[..., Any] | None:
    """The function of a name, if there is one."""
    return ELEMENTWISE.get(name) or EXTERNAL.get(name)
