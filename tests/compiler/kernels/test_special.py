"""Vector functions against the C library's in float64, up to their ends."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, erfc, sqrt

import numpy as np
import pytest

from maxtool.compiler.kernels.formulas import CHAINED
from maxtool.compiler.kernels.kernel_options import ChainStep
from maxtool.compiler.kernels.pointwise import pointwise

from .harness import BACKEND, call, compiled


def gelu(x: np.ndarray) -> np.ndarray:
    return x * np.vectorize(erfc, otypes=["f8"])(-x / sqrt(2)) / 2


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": gelu,
    "gelu_quick": lambda x: x / (1 + np.exp(-1.702 * x)),
    "gelu_tanh": gelu_tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


ROUNDING = {"ceil": np.ceil, "floor": np.floor, "round": np.round, "trunc": np.trunc}


def vector(name: str, x: np.ndarray) -> np.ndarray:
    rows = x.astype("f4").reshape(1, -1)
    function = compiled(pointwise, BACKEND, rows.shape[1], 1, (ChainStep(name, (0,)),))
    return call(function, rows, shape=rows.shape)[0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function(name: str) -> None:
    x = np.concatenate([np.linspace(-12, 12, 4001), 10.0 ** np.arange(-30, 0), [0.0]]).astype("f4")
    actual, expected = vector(name, x), FUNCTIONS[name](x.astype("f8"))
    # An argument of exp that is rounded costs as many digits more as it is large.
    np.testing.assert_allclose(actual, expected, rtol=6e-7 if name == "tanh" else 2e-5, atol=1e-36)
    near = np.abs(x) < 3
    np.testing.assert_allclose(actual[near], expected[near], rtol=1.5e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_ends(name: str) -> None:
    result = vector(name, np.array([np.inf, -np.inf, np.nan, 1e30, -1e30, -0.0]))
    high = [np.inf, 1e30] if name.startswith(("gelu", "hard", "silu")) else [1, 1]
    np.testing.assert_allclose(result[[0, 3]], high)
    assert np.isnan(result[2])
    low = -1 if name == "tanh" else 0
    np.testing.assert_allclose(result[4], low)
    assert result[5] == (0.5 if name == "sigmoid" else 0)


def test_the_error_function() -> None:
    x = np.concatenate([np.linspace(-6, 6, 4001), 10.0 ** np.arange(-30, 0), [0.0]]).astype("f4")
    expected = np.vectorize(erf)(x.astype("f8"))
    np.testing.assert_allclose(vector("erf", x), expected, rtol=3e-7)
    ends = vector("erf", np.array([np.inf, -np.inf, 1e30, np.nan]))
    np.testing.assert_array_equal(ends, [1, -1, 1, np.nan])


def test_powers_of_e() -> None:
    """Powers of any number: where they are no float32 any more they are infinite, or 0."""
    x = np.concatenate([np.linspace(-87, 88.7, 4001), [0.0, 1e-30]]).astype("f4")
    np.testing.assert_allclose(vector("exp", x), np.exp(x.astype("f8")), rtol=2e-5)
    near = np.linspace(-3, 3, 1001).astype("f4")
    np.testing.assert_allclose(vector("exp", near), np.exp(near.astype("f8")), rtol=4e-7)
    ends = vector("exp", np.array([89.0, 1e30, np.inf, -104.0, -np.inf, np.nan]))
    np.testing.assert_array_equal(ends, [np.inf, np.inf, np.inf, 0, 0, np.nan])


def test_every_one_of_them_is_tried() -> None:
    plain = {
        "abs",
        "add",
        "erf",
        "exp",
        "sub",
        "mul",
        "div",
        "maximum",
        "minimum",
        "negative",
        "relu",
        "sqrt",
    }
    assert set(CHAINED) == plain | set(FUNCTIONS) | set(ROUNDING)


@pytest.mark.parametrize("name", ROUNDING)
def test_whole_numbers(name: str) -> None:
    """Ties go to even numbers; NaN and infinities stay."""
    ends = [np.inf, -np.inf, np.nan, 1e30, -1e30, 0.0, -0.0]
    x = np.concatenate([np.arange(-9, 9, 0.25), [2.0**23 + 1, -(2.0**24)], ends]).astype("f4")
    np.testing.assert_array_equal(vector(name, x), ROUNDING[name](x))
