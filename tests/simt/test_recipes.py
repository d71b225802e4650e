"""Every recipe lowered for GPUs, in each type of its matrices, against transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.parity.references import CachedReference, reference
from maxtool.weights import open_checkpoint
from tests.artifact.measure import Array, error, recorded
from tests.parity.measure import DATA, FOLDERS
from tests.simt.model import SimulatedModel

DTYPES = (DType.float32, DType.float16, DType.bfloat16)
ENCODERS = ("tiny-bert", "tiny-distilbert", "tiny-nomic-bert", "tiny-roberta")
OUTPUTS = ("last_hidden_state", "pooler_output")
# Positions that the recorded texts of encoders have, padding included.
CONTEXT = 40
DECODED = 3
GREEDY = 8
# One of those that run in the fast tests.
QUICK = {("tiny-llama", DType.float16)}


def cases(*folders: str) -> list[object]:
    return [
        pytest.param(
            DATA / name,
            dtype,
            id=f"{name}-{dtype.value}",
            marks=() if (name, dtype) in QUICK else pytest.mark.slow,
        )
        for name in folders
        for dtype in DTYPES
    ]


@pytest.mark.parametrize(("folder", "dtype"), cases(*FOLDERS))
def test_logits_are_those_of_transformers(folder: Path, dtype: DType) -> None:
    model, expected = SimulatedModel(folder, dtype), recorded(folder)
    found = model.run("forward", {"input_ids": expected["input_ids"]})["logits"]
    assert apart(found, expected["logits"], model) <= model.tolerance


def apart(found: Array, expected: Array, model: SimulatedModel) -> float:
    """The relative error; with experts and 16 bits, that of all tokens but a quarter.

    Two experts may be so close that the 16 bits of what they are chosen by decide between them,
    for a token and through attention for those that follow it.
    """
    if not model.chooses_by_rounded_values:
        return error(found, expected)
    each = np.linalg.norm(found - expected, axis=-1) / np.linalg.norm(expected, axis=-1)
    return float(np.quantile(each, 0.75))


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "dtype"), cases(*FOLDERS))
def test_cached_logits_are_those_of_the_reference(folder: Path, dtype: DType) -> None:
    model, ids = SimulatedModel(folder, dtype), recorded(folder)["input_ids"][:1]
    starts = [0, *range(ids.shape[1] - DECODED, ids.shape[1])]
    expected = reference(open_checkpoint(folder))
    assert isinstance(expected, CachedReference)
    found, state = [], model.new_state()
    for start, stop in zip(starts, [*starts[1:], ids.shape[1]], strict=True):
        inputs = {"input_ids": ids[:, start:stop], "position": np.array([start], np.int32)}
        found.append(model.run("decode" if start else "prefill", inputs, state)["logits"])
    assert apart(np.stack(found, 1), expected.cached(ids, starts), model) <= model.tolerance


@pytest.mark.slow
@pytest.mark.parametrize("folder", [DATA / name for name in FOLDERS], ids=str)
def test_the_likeliest_tokens_are_those_of_transformers(folder: Path) -> None:
    expected = recorded(folder)
    model = SimulatedModel(folder, DType.float32)
    assert (
        greedy(model, expected["greedy_prompt"]) == expected["greedy_tokens"][0, :GREEDY].tolist()
    )


def greedy(model: SimulatedModel, prompt: Array) -> list[int]:
    tokens: list[int] = []
    inputs, position, entry, state = prompt, 0, "prefill", model.new_state()
    for _ in range(GREEDY):
        arrays = {"input_ids": inputs, "position": np.array([position], np.int32)}
        tokens.append(int(model.run(entry, arrays, state)["logits"][0].argmax()))
        position += inputs.shape[1]
        inputs, entry = np.array([[tokens[-1]]]), "decode"
    return tokens


@pytest.mark.parametrize(("folder", "dtype"), cases(*ENCODERS))
def test_hidden_states_are_those_of_transformers(folder: Path, dtype: DType) -> None:
    model, expected = SimulatedModel(folder, dtype, CONTEXT), recorded(folder)
    inputs = {name: expected[name] for name in model.entries["forward"].inputs}
    found = model.run("forward", inputs)
    assert set(found) == set(OUTPUTS) & set(expected)
    for name, array in found.items():
        assert error(array, expected[name]) <= model.tolerance, name
