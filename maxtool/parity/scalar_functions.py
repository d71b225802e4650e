"""Functions of single elements: arithmetic, activations, comparisons and casts."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from maxtool.casting import cast as rounded
from maxtool.dtype import DType
from maxtool.parity.array_types import Definitions, Floats, Integers
from maxtool.parity.thresholds import rounded as rounded_to_whole


def _erf(x: Floats) -> Floats:
    values = np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size)
    return values.reshape(x.shape)


def _sigmoid(x: Floats) -> Floats:
    """Compute ``1 / (1 + exp(-x))``, written so that exp cannot overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


def _gelu(x: Floats) -> Floats:
    return x * (1 + _erf(x / math.sqrt(2))) / 2


def _gelu_tanh(x: Floats) -> Floats:
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def _pow(x: Floats, y: Floats) -> Floats:
    """Raise to a power; whole numbers to a negative one are rounded towards 0."""
    if x.dtype.kind not in "iu":
        return np.power(x, y)
    units = np.where(x == -1, np.where(y % 2 == 0, 1, -1), x == 1)
    return np.where(y < 0, units, np.power(x, np.maximum(y, 0))).astype(x.dtype)


def _shifting(function: Callable[..., Integers]) -> Callable[..., Integers]:
    """Shift bits; all of them are gone where the places are as many as the type has."""

    def shift(x: Integers, y: Integers) -> Integers:
        gone = y >= 8 * x.dtype.itemsize
        return np.where(gone, x.dtype.type(0), function(x, np.where(gone, y.dtype.type(0), y)))

    return shift


def _cast(x: Floats, dtype: DType) -> Floats:
    """Round to a float type of fewer than 32 bits, cut to whole numbers, or test for 0."""
    if dtype is DType.bool:
        return x != 0
    narrow = dtype.is_float() and dtype.size_in_bytes < 4
    return rounded(x, dtype)[0] if narrow and x.dtype.kind == "f" else x


# Operations that NumPy calls by the same name.
OF_NUMPY = (
    "abs add ceil cos equal exp floor greater greater_equal less less_equal log log1p "
    "logical_and logical_not logical_or logical_xor maximum minimum mod negative not_equal "
    "sin sqrt tanh trunc where"
)

COMPUTED: Definitions = {
    **{name: getattr(np, name) for name in OF_NUMPY.split()},
    "acos": np.arccos,
    "asin": np.arcsin,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "bitwise_and": np.bitwise_and,
    "bitwise_not": np.invert,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "cast": _cast,
    "div": np.divide,
    "erf": _erf,
    "floordiv": np.floor_divide,
    "gelu": _gelu,
    "gelu_quick": lambda x: x * _sigmoid(1.702 * x),
    "gelu_tanh": _gelu_tanh,
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "is_inf": np.isinf,
    "is_nan": np.isnan,
    "mul": np.multiply,
    "pow": _pow,
    "relu": lambda x: np.maximum(x, 0),
    "round": rounded_to_whole,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "shift_left": _shifting(np.left_shift),
    "shift_right": _shifting(np.right_shift),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "softplus": lambda x: np.logaddexp(x, 0),
    "sub": np.subtract,
}
