"""Which reference a checkpoint gets, told by its own files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from maxtool.errors import ConfigurationError
from maxtool.parity.references import REFERENCES, CachedReference, reference
from maxtool.recipe import load_recipe, recipe_names
from maxtool.weights.checkpoint import open_checkpoint

TINY = Path(__file__).resolve().parents[1] / "data" / "tiny-llama"


def test_forward_and_cached_calls_are_the_recorded_logits() -> None:
    expected = np.load(TINY / "expected.npz")
    found = reference(open_checkpoint(TINY))
    assert isinstance(found, CachedReference)
    ids, logits = expected["input_ids"], expected["logits"]
    np.testing.assert_allclose(found.forward({"input_ids": ids})["logits"], logits, atol=1e-4)
    np.testing.assert_allclose(found.cached(ids, [0, 12, 20]), logits[:, [11, 19, 23]], atol=1e-4)


def test_an_unknown_kind_names_the_known_ones(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(TINY, folder)
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "mine"}
    config["architectures"] = ["MineForCausalLM", 3]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigurationError, match="--check knows no reference") as raised:
        reference(open_checkpoint(folder))
    assert "'mine'" in str(raised.value)
    assert "mistral" in (raised.value.hint or "")


def test_a_model_of_a_known_class_may_call_itself_as_it_likes(tmp_path: Path) -> None:
    config = json.loads((TINY / "config.json").read_text()) | {"model_type": "mine"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    ids = np.load(TINY / "expected.npz")["input_ids"]
    found, expected = (
        reference(open_checkpoint(TINY, config=path / "config.json")).forward({"input_ids": ids})
        for path in (tmp_path, TINY)
    )
    np.testing.assert_array_equal(found["logits"], expected["logits"])


@pytest.mark.parametrize("name", recipe_names())
def test_every_model_that_a_recipe_recognises_has_a_reference(name: str) -> None:
    match = load_recipe(name).match
    model_types = {known for kind in REFERENCES for known in kind.model_types}
    architectures = {known for kind in REFERENCES for known in kind.gguf}
    assert set(match["hf"].values.get("model_type", ())) <= model_types
    assert set(match["gguf"].values.get("general.architecture", ())) <= architectures
