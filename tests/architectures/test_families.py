"""The decoder as each family of language models, against outputs recorded from transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool.architectures import Decoder, build
from tests.architectures import families
from tests.architectures.decoders import Steps

DATA = Path(__file__).parents[1] / "data"
ENCODERS = {"tiny-bert", "tiny-roberta", "tiny-distilbert", "tiny-nomic-bert"}
RECORDED = sorted(
    folder.name
    for folder in DATA.glob("tiny-*")
    if folder.name not in ENCODERS and "llama-tied" not in folder.name
)


def relative_error(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_a_family(name: str) -> None:
    """Logits of a whole sequence, and the greedy tokens that follow a prompt, from a cache."""
    options, weights = families.read(DATA / name)
    model = build("decoder", options)
    assert isinstance(model, Decoder)
    model.load_state_dict(weights)
    recorded = np.load(DATA / name / "expected.npz")
    forward = model.entries()[0]
    logits = model.compile(*forward.inputs.values())(recorded["input_ids"]).to_numpy()
    assert relative_error(logits, recorded["logits"]) < 1e-5

    steps, tokens = Steps(model, batch=1), []
    ids = recorded["greedy_prompt"]
    for _ in range(recorded["greedy_tokens"].shape[1]):
        ids = steps(ids).argmax(-1)[:, None]
        tokens.append(int(ids[0, 0]))
    assert tokens == recorded["greedy_tokens"][0].tolist()
