"""Tensors that say the configuration: Llama 3.1's factors of the rotary frequencies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from maxtool.errors import MisshapenWeight, ModelMismatch
from maxtool.recipe.computed import (
    LLAMA3,
    Findings,
    computed_tensors,
    found_in,
    llama3_factors,
)
from maxtool.recipe.schema import Computed
from maxtool.weights import Checkpoint, open_checkpoint

TENSOR = Computed("rope_freqs.weight", "llama3", "", {"rope_scaling": "llama3"})
PUBLISHED = {
    "rope_scaling": "llama3",
    "rope_theta": 500000.0,
    "head_dim": 128,
    "context_length": 131072,
    **dict(zip(LLAMA3, (8.0, 1.0, 4.0, 8192), strict=True)),
}


def say(array: np.ndarray, values: dict[str, Any]) -> dict[str, Any]:
    known = {k: values[k] for k in ("rope_theta", "head_dim", "context_length")}
    found = Findings([(TENSOR, array)])
    names = [*LLAMA3, "rope_scaling", "rope_long_factors", "rope_attention_factor"]
    said = {name: found.say(name, known) for name in names}
    assert all(one is None or one[0] == TENSOR.tensor for one in said.values())
    return {name: one[1] for name, one in said.items() if one is not None}


def in_float64(values: dict[str, Any]) -> np.ndarray:
    """The formula as the Llama 3.1 model card's code has it, one frequency at a time."""
    factor, low, high, context = (values[name] for name in LLAMA3)
    factors = []
    for index in range(0, values["head_dim"], 2):
        wavelength = 2 * np.pi * values["rope_theta"] ** (index / values["head_dim"])
        if wavelength < context / high:
            factors.append(1.0)
        elif wavelength > context / low:
            factors.append(factor)
        else:
            smooth = (context / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors)


@given(
    theta=st.sampled_from([1e4, 5e5, 1e6]),
    dim=st.integers(1, 80).map(lambda half: 2 * half),
    factor=st.sampled_from([2.0, 8.0, 32.0]),
    context=st.sampled_from([64, 256, 8192]),
)
def test_llama3(theta: float, dim: int, factor: float, context: int) -> None:
    scaling = dict(zip(LLAMA3, (factor, 1.0, 4.0, context), strict=True))
    values = PUBLISHED | {"rope_theta": theta, "head_dim": dim} | scaling
    made = computed_tensors([TENSOR], values)["rope_freqs.weight"]
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, in_float64(values), rtol=2e-5)
    found = say(made, values)
    again = llama3_factors({**values, **found}) if "rope_factor" in found else np.ones_like(made)
    np.testing.assert_allclose(again, made, rtol=1e-5)


def test_published_models_are_recognised() -> None:
    found = say(llama3_factors(PUBLISHED), PUBLISHED)
    assert found == {key: PUBLISHED[key] for key in ("rope_scaling", *LLAMA3)}


@pytest.mark.parametrize(
    ("changes", "between"),
    [
        ({}, [1.2074839, 1.5534146, 2.026313, 2.69453, 3.6842532, 5.257327]),
        ({"head_dim": 64, "rope_factor": 32.0}, [1.6513293, 3.2922628, 9.666731]),
    ],
)
def test_published_factors_to_the_last_bit(changes: dict[str, Any], between: list[float]) -> None:
    """Match Llama 3.1 and 3.2 as torch computes them in llama.cpp's converter."""
    made = llama3_factors(PUBLISHED | changes)
    factor = (PUBLISHED | changes)["rope_factor"]
    smooth = made[(made > 1) & (made < factor)]
    np.testing.assert_array_equal(smooth, np.float32(between))


def test_other_factors_stay_what_they_are() -> None:
    array = np.linspace(1, 5, 64, dtype=np.float32)
    found = say(array, PUBLISHED)
    assert found["rope_scaling"] == "longrope"
    assert found["rope_attention_factor"] == 1.0
    np.testing.assert_array_equal(np.float32(found["rope_long_factors"]), array)


def test_factors_of_another_length() -> None:
    with pytest.raises(MisshapenWeight, match="needs 64 elements"):
        say(np.ones(3, np.float32), PUBLISHED)


NUMBERS = Computed("x.{layer}.beta", "number_by_layer", "beta", {"act": "own"})
VECTORS = Computed("x.{layer}.alpha", "vector_by_layer", "alpha", {})


def checkpoint_of(folder: Path, tensors: dict[str, np.ndarray]) -> Checkpoint:
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    return open_checkpoint(folder)


def test_numbers_by_layer_there_and_back(tmp_path: Path) -> None:
    values = {"beta": (0.5, -0.25, 3.0), "alpha": (-1.5, 0.0, 2.0), "act": "own", "n_layers": 3}
    made = computed_tensors([NUMBERS, VECTORS], values)
    assert {name: array.shape for name, array in made.items()} == {
        **{f"x.{layer}.beta": () for layer in range(3)},
        **{f"x.{layer}.alpha": (1,) for layer in range(3)},
    }
    checkpoint = checkpoint_of(tmp_path, {name: np.asarray(one) for name, one in made.items()})
    found = found_in([NUMBERS, VECTORS], checkpoint, checkpoint.tensors)
    said = {name: found.say(name, {"n_layers": 3}) for name in ("beta", "alpha", "act")}
    assert {name: one and one[1] for name, one in said.items()} == {
        name: values[name] for name in said
    }


@pytest.mark.parametrize(
    ("tensors", "problem"),
    [
        ({0: np.ones(1), 2: np.ones(1)}, "x.1.beta is missing"),
        ({0: np.ones(1), 1: np.ones(1)}, "one for each of 3 layers, found 2"),
        ({0: np.ones(1), 1: np.ones(2), 2: np.ones(1)}, "at most 1, found [2]"),
        ({0: np.ones(1), 1: np.full(1, np.nan), 2: np.ones(1)}, "holds no factors"),
    ],
)
def test_numbers_by_layer_that_do_not_fit(
    tmp_path: Path, tensors: dict[int, np.ndarray], problem: str
) -> None:
    named = {f"x.{layer}.beta": array.astype(np.float32) for layer, array in tensors.items()}
    checkpoint = checkpoint_of(tmp_path, named)
    with pytest.raises(ModelMismatch) as caught:
        found_in([NUMBERS], checkpoint, checkpoint.tensors).say("beta", {"n_layers": 3})
    assert problem in str(caught.value)


def test_no_scaling_no_tensor() -> None:
    assert computed_tensors([TENSOR], PUBLISHED | {"rope_scaling": "none"}) == {}
