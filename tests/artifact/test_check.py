"""What --check compares, and what it says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from maxtool import artifact
from maxtool.artifact import check, lengths
from maxtool.cli.app import app
from maxtool.errors import ConfigurationError, ParityFailed
from maxtool.parity.references import CachedReference, reference
from maxtool.runtime.loader.trials import FILE, Tolerance
from maxtool.weights import open_checkpoint


def test_a_model_without_a_reference_is_refused_before_it_is_compiled(
    data: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(data / "tiny-llama", source)
    config = json.loads((source / "config.json").read_text())
    config |= {"model_type": "mine", "architectures": ["MineForCausalLM"]}
    (source / "config.json").write_text(json.dumps(config))
    request = artifact.Request(source, tmp_path / "out", recipe="llama", check=True)
    with pytest.raises(
        ConfigurationError, match="--check knows no reference for model_type 'mine'"
    ):
        artifact.prepare(request)
    assert not (tmp_path / "out").exists()


def with_window(data: Path, folder: Path, window: int) -> Path:
    shutil.copytree(data / "tiny-mistral", folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"sliding_window": window, "max_position_embeddings": 64}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_window_longer_than_the_usual_text_is_passed(data: Path, tmp_path: Path) -> None:
    """An artifact that has lost its window is found out, though 24 tokens would not tell."""
    source, output = with_window(data, tmp_path / "source", 40), tmp_path / "out"
    recipe = tmp_path / "windowless.toml"
    recipe.write_text(
        'schema = 1\nname = "windowless"\nextends = "mistral"\n[config]\nsliding_window = false\n'
    )
    ignore = frozenset({"sliding_window"})
    lost = artifact.Request(source, output, recipe=str(recipe), ignore=ignore, check=True)
    with pytest.raises(ParityFailed) as caught:
        artifact.make(artifact.prepare(lost))
    assert len(caught.value.problems) == 2, "decoding passes the window too"
    assert not output.exists()
    artifact.make(artifact.prepare(artifact.Request(source, output, check=True)))
    checked = json.loads((output / "manifest.json").read_text())["check"]
    assert (checked["tokens"], checked["unreached"]) == (40 + lengths.PAST, [])


def test_a_context_may_end_before_the_window_does(data: Path, tmp_path: Path) -> None:
    source, output = with_window(data, tmp_path / "source", 40), tmp_path / "out"
    artifact.make(artifact.prepare(artifact.Request(source, output, context=20, check=True)))
    checked = json.loads((output / "manifest.json").read_text())["check"]
    assert (checked["tokens"], checked["unreached"]) == (20, [])


def test_what_the_check_could_not_reach_is_told(data: Path, tmp_path: Path) -> None:
    source = with_window(data, tmp_path / "source", 600)
    config = json.loads((source / "config.json").read_text()) | {"max_position_embeddings": 700}
    (source / "config.json").write_text(json.dumps(config))
    arguments = ["compile", str(source), "-o", str(tmp_path / "out"), "--check"]
    result = CliRunner().invoke(app, arguments)
    assert "checked with 24 tokens: relative error" in " ".join(result.stdout.split())
    told = "not checked: what the model computes otherwise beyond 600 tokens"
    assert told in " ".join(result.stderr.split())


class Decoder:
    """What a reference says of the length to compare."""

    def __init__(self, turns: tuple[int, ...], work: int = 1000) -> None:
        self.turns, self.work = turns, work

    def forward(self, inputs: object) -> Any: ...

    def cached(self, input_ids: object, starts: object) -> Any: ...


@pytest.mark.parametrize(
    ("turns", "work", "context", "expected"),
    [
        ((), 1000, 4096, 24),
        ((7,), 1000, 4096, 24),
        ((7, 100), 1000, 4096, 106),
        ((100, 4096), 1000, 8192, 106),
        ((512,), 1000, 4096, 518),
        ((513,), 1000, 4096, 24),
        ((100,), 1000, 103, 103),
        ((100,), 1000, 100, 24),
        ((100,), 1000, None, 106),
        ((100,), 1000, 16, 16),
        ((64, 300), 10**9, 4096, 70),
        ((64, 300), 10**10, 4096, 24),
    ],
)
def test_how_many_tokens_are_compared(
    turns: tuple[int, ...], work: int, context: int | None, expected: int
) -> None:
    assert lengths.tokens(Decoder(turns, work), context) == expected


@pytest.mark.parametrize(
    ("name", "turns"),
    [("tiny-gemma3", (7,)), ("tiny-phi3-longrope", (16,)), ("tiny-llama3", ())],
)
def test_references_know_where_they_compute_otherwise(
    data: Path, name: str, turns: tuple[int, ...]
) -> None:
    found = reference(open_checkpoint(data / name))
    assert isinstance(found, CachedReference)
    assert found.turns == turns
    matrices = load_file(data / name / "model.safetensors")
    assert found.work == sum(array.size for array in matrices.values())


def test_forward_is_shown_fewer_tokens_where_its_logits_would_be_many(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An artifact for another machine has them recorded: a window must not fill a disk."""
    source, output = with_window(data, tmp_path / "source", 40), tmp_path / "out"
    artifact.make(artifact.prepare(artifact.Request(source, output)))

    def recorded(largest: int) -> set[tuple[int, ...]]:
        monkeypatch.setattr(check, "LARGEST", largest)
        check.record(output, open_checkpoint(source), Tolerance(1e-4, 1e-5))
        with np.load(output / FILE) as arrays:
            return {array.shape for array in arrays.values()}

    in_turn = {(1, 35), (1, 1), (1,), (1, 12, 97)}
    assert recorded(46 * 97) >= in_turn | {(1, 46), (1, 46, 97)}
    assert recorded(46 * 97 - 1) >= in_turn | {(1, 24), (1, 24, 97)}
