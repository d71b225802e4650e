"""A model compiled for GPUs draws tokens step by step: those that its logits give on the host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.runtime.loader.sampling import Sampling, distribution, penalised
from tests.effort import examples
from tests.simt.model import SimulatedModel

MODEL = Path(__file__).parents[2] / "data" / "tiny-llama"
CONTEXT, TEXT, COUNT = 16, [1, 5, 9], examples(2, 3)
RANDOM = Sampling(0.9, top_k=20, top_p=0.9, min_p=0.01, repetition_penalty=1.2)


@pytest.fixture(scope="module")
def model() -> SimulatedModel:
    return SimulatedModel(MODEL, DType.float16, CONTEXT)


def drawn(model: SimulatedModel, settings: list[float], numbers: np.ndarray) -> list[int]:
    """The tokens of as many calls as there are numbers."""
    state, result = model.new_state(), []
    draws = np.zeros(CONTEXT, "f4")
    draws[0], draws[len(TEXT) : len(TEXT) + len(numbers) - 1] = numbers[0], numbers[1:]
    fixed = {"draws": draws, "settings": np.array(settings, "f4")}
    inputs = {"token": np.array([TEXT]), "position": np.array([0], "i4")}
    for name in ["sample_prefill"] + ["sample_decode"] * (len(numbers) - 1):
        inputs = model.run(name, inputs | fixed, state)
        result.append(int(inputs["token"][0, 0]))
    return result


def picked(model: SimulatedModel, how: Sampling, numbers: np.ndarray) -> list[int]:
    """The same on the host, from the logits."""
    state, text, position = model.new_state(), list(TEXT), 0
    for number in numbers:
        inputs = {"input_ids": np.array([text[position:]]), "position": np.array([position], "i4")}
        name = "decode" if position else "prefill"
        (logits,) = model.run(name, inputs, state).values()
        position = len(text)
        moved = penalised(logits[0], text, how.repetition_penalty)
        if how.temperature == 0:
            text.append(int(moved.argmax()))
            continue
        tokens, shares = distribution(moved, how)
        text.append(int(tokens[np.searchsorted(shares.cumsum(), number, side="right")]))
    return text[len(TEXT) :]


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "settings"),
    [
        pytest.param(Sampling(0.0), [0, 0, 1, 0, 1], marks=pytest.mark.slow),
        (RANDOM, [0.9, 20, 0.9, 0.01, 1.2]),
    ],
)
def test_the_tokens_are_those_of_the_logits(
    model: SimulatedModel, how: Sampling, settings: list[float]
) -> None:
    numbers = np.random.default_rng(0).random(COUNT).astype("f4")
    assert drawn(model, settings, numbers) == picked(model, how, numbers)
