"""The decoder as each family of language models, against outputs recorded from transformers."""

from __future__ import annotations

import pytest

from maxtool.architectures import Decoder, build
from tests.architectures import families
from tests.architectures.decoders import Steps
from tests.parity.measure import DATA, FOLDERS, error, recorded

RECORDED = [name for name in FOLDERS if families.knows(DATA / name)]


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_a_family(name: str) -> None:
    """Logits of a whole sequence, and the greedy tokens that follow a prompt, from a cache."""
    options, weights = families.read(DATA / name)
    model = build("decoder", options)
    assert isinstance(model, Decoder)
    model.load_state_dict(weights)
    expected = recorded(DATA / name)
    forward = model.entries()[0]
    logits = model.compile(*forward.inputs.values())(expected["input_ids"]).to_numpy()
    assert error(logits, expected["logits"]) < 1e-5

    steps, tokens = Steps(model, batch=1), []
    ids = expected["greedy_prompt"]
    for _ in range(expected["greedy_tokens"].shape[1]):
        ids = steps(ids).argmax(-1)[:, None]
        tokens.append(int(ids[0, 0]))
    assert tokens == expected["greedy_tokens"][0].tolist()


def test_every_family_is_recorded() -> None:
    kinds = {families.configuration(DATA / name)["model_type"] for name in RECORDED}
    assert kinds == families.MODEL_TYPES
