"""Activations by their names, beside transformers' own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.graph import Tensor
from maxtool.recipe.activation_codecs import NAMES
from tests.architectures.oracle import ACTIVATIONS as FORMULAS

X = np.concatenate(
    [np.linspace(-14, 14, 4001), np.array([-1e4, -88, -30, -0.0, 0, 30, 88, 1e4, np.inf, np.nan])]
).astype("f4")


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
