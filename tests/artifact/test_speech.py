"""Compiled models of speech compute what transformers computed with the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool import artifact
from maxtool.errors import UsageError
from maxtool.runtime import loader
from tests.artifact.making import made
from tests.artifact.measure import BOUND, error
from tests.data.seeded import input_features
from tests.parity.speech import steps
from tests.parity.test_speech import CASES, RECORDED, written

RECIPES = {"whisper": "whisper-0"}


@pytest.mark.long
@pytest.mark.parametrize("recipe", RECIPES)
def test_check_passes(recipe: str, tmp_path: Path) -> None:
    case = RECIPES[recipe]
    model = loader.load(made(written(case, tmp_path / "model"), check=True))
    assert (model.manifest.root["recipe"], model.manifest.task) == (recipe, "transcribe")
    features = input_features(CASES[case]["config"])
    state = model.new_state(batch=len(features))
    for _ in range(2):  # what the state held before does not matter
        encoded = model.run("encode", {"input_features": features}, state)["last_hidden_state"]
        logits = [model.run(*call, state)["logits"] for call in steps(len(features))]
        assert error(encoded, RECORDED[f"{case}/encoded"]) <= BOUND
        assert error(np.stack(logits, 1), RECORDED[f"{case}/logits"]) <= BOUND
    (_, first), *_ = steps(1)
    with pytest.raises(loader.DoesNotFit, match="the state holds no source"):
        model.run("prefill", first)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"batch": 2}, "--batch is for models that write texts, not whisper"),
        ({"devices": 2}, "--devices is for decoders"),
        ({"context": 17}, "--context 17 is not from 1 to 16"),
    ],
)
def test_what_is_refused(options: dict[str, Any], problem: str, tmp_path: Path) -> None:
    source = written("whisper-0", tmp_path / "model")
    with pytest.raises(UsageError, match=problem):
        artifact.prepare(artifact.Request(source, tmp_path / "out", **options))


def test_no_cache_in_blocks(tmp_path: Path) -> None:
    source = written("whisper-0", tmp_path / "model")
    blocks = artifact.cache_type.BLOCKS
    with pytest.raises(UsageError, match="no kernel attends to an encoder's output in blocks"):
        artifact.prepare(artifact.Request(source, tmp_path / "out", kv_dtype=blocks))


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
def test_check_against_transformers(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs the peers extra")
    source = written("whisper-0", tmp_path / "model")
    folder = made(source, check=True, against="transformers")
    check = loader.load(folder).manifest.root["check"]
    assert (check["status"], check["against"], check["tokens"]) == ("passed", "transformers", 16)
    assert check["relative_error"] < BOUND
