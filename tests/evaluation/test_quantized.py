"""Artifacts of quantized files, beside what llama.cpp computes with the same files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from maxtool.cli.app import app
from maxtool.evaluation.comparing import compare
from maxtool.evaluation.language_model import LanguageModel
from maxtool.weights.checkpoint import open_checkpoint
from tests.parity import yardstick
from tests.parity.traced import TracedModel

pytestmark = pytest.mark.slow

PERPLEXITY = 0.005
# Both sides round activations to 8 bits, but not in the same blocks: errors as large as
# llama.cpp's may differ by so much.
DIVERGENCE, ERROR = 1.1, 1.1


def compiled(source: Path, folder: Path, *options: str) -> LanguageModel:
    words = ["compile", str(source), "-o", str(folder), *options]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return LanguageModel(folder)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    folder = tmp_path_factory.mktemp("reference") / "float32"
    return compiled(yardstick.FOLDER, folder, "--dtype", "float32")


@pytest.mark.parametrize("name", yardstick.NAMES)
def test_figures_are_those_of_llama_cpp(
    name: str, reference: LanguageModel, tmp_path: Path
) -> None:
    file = yardstick.checkpoint(name, tmp_path)
    model = compiled(file, tmp_path / "artifact")
    theirs = yardstick.RECORDED["files"][name]
    _, ours = compare([reference, model], yardstick.windows())
    assert ours.perplexity.value == pytest.approx(theirs["perplexity"][0], rel=PERPLEXITY)
    if name != yardstick.REFERENCE:
        assert ours.divergence.value < DIVERGENCE * theirs["divergence"][0]
    assert error(model, file) < ERROR * theirs["error"]


def error(model: LanguageModel, file: Path) -> float:
    """The relative error of a model's logits, beside float64 with the same decoded weights."""
    exact, windows = TracedModel(open_checkpoint(file)), yardstick.windows()
    rows = [
        (windows.scored(model.logits(ids)), windows.scored(exact.forward(ids[np.newaxis])[0]))
        for ids in windows.ids
    ]
    ours, expected = (np.stack(side) for side in zip(*rows, strict=True))
    return float(np.linalg.norm(ours - expected) / np.linalg.norm(expected))
