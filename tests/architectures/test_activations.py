"""Activations by their names, beside transformers' own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.graph import Tensor
from maxtool.recipe.activation_codecs import NAMES

X = np.concatenate(
    [np.linspace(-14, 14, 4001), np.array([-1e4, -88, -30, -0.0, 0, 30, 88, 1e4, np.inf, np.nan])]
).astype("f4")
erf = np.vectorize(math.erf)


def logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def softplus(x: Any) -> Any:
    return np.logaddexp(0, x)


def gelu(x: Any) -> Any:
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))


FORMULAS: dict[str, Callable[[Any], Any]] = {
    "silu": lambda x: x * logistic(x),
    "gelu": gelu,
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "quick_gelu": lambda x: x * logistic(1.702 * x),
    "tanh": np.tanh,
    "sigmoid": logistic,
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x < 0, x / 100, x),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "mish": lambda x: x * np.tanh(softplus(x)),
    "gelu_10": lambda x: np.clip(gelu(x), -10, 10),
    "laplace": lambda x: (1 + erf((x - 0.707107) / (0.282095 * math.sqrt(2)))) / 2,
    "sqrtsoftplus": lambda x: np.sqrt(softplus(x)),
    "linear": lambda x: x,
}


def test_each_has_a_formula_and_a_name() -> None:
    assert {*ACTIVATIONS} == {*FORMULAS}
    assert {*NAMES.values()} == {*FORMULAS}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_formulas(name: str) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        expected = FORMULAS[name](X.astype("f8"))
    close(ACTIVATIONS[name](Tensor(X)).to_numpy(), expected)


@pytest.mark.peers
def test_transformers_formulas() -> None:
    torch = pytest.importorskip("torch")
    activations = pytest.importorskip("transformers.activations")
    assert {*NAMES} == {*activations.ACT2FN} - {"prelu", "xielu"}
    for theirs, ours in NAMES.items():
        expected = activations.ACT2FN[theirs](torch.from_numpy(X).double()).numpy()
        close(ACTIVATIONS[ours](Tensor(X)).to_numpy(), expected)


def close(ours: Any, expected: Any) -> None:
    np.testing.assert_allclose(ours, expected, rtol=2e-6, atol=1e-6)
