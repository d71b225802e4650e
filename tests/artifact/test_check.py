"""Comparisons of --check, and its messages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from typer.testing import CliRunner

from maxtool import artifact
from maxtool.artifact import check, check_lengths, original_model
from maxtool.artifact.graph_outputs import GraphRunner
from maxtool.cli.app import app
from maxtool.conversion import Request, convert, prepare
from maxtool.errors import ConfigurationError, ParityFailed
from maxtool.graph import Graph, Node
from maxtool.runtime.loader.recorded_checks import FILE, Tolerance


@pytest.mark.long
def test_a_model_that_no_table_names_is_checked(data: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "source", tmp_path / "out"
    shutil.copytree(data / "tiny-llama", source)
    config = json.loads((source / "config.json").read_text())
    config |= {"model_type": "mine", "architectures": ["MineForCausalLM"]}
    (source / "config.json").write_text(json.dumps(config))
    artifact.make(artifact.prepare(artifact.Request(source, output, recipe="llama", check=True)))
    checked = json.loads((output / "manifest.json").read_text())["check"]
    assert (checked["status"], checked["against"]) == ("passed", "graph")


def with_window(data: Path, folder: Path, window: int) -> Path:
    shutil.copytree(data / "tiny-mistral", folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"sliding_window": window, "max_position_embeddings": 64}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.long
def test_a_window_longer_than_the_usual_text_is_passed(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An artifact that has lost its window is found out, though 24 tokens would not tell."""
    source, output = with_window(data, tmp_path / "source", 40), tmp_path / "out"
    result = artifact.prepare(artifact.Request(source, output, check=True))
    artifact.make(result)
    checked = json.loads((output / "manifest.json").read_text())["check"]
    assert (checked["tokens"], checked["unreached"]) == (40 + check_lengths.PAST, [])
    lost = artifact.prepare(artifact.Request(source, output, force=True))
    for graph in nested(lost.contents.graphs):
        for node in graph.nodes:
            if isinstance(node, Node) and node.op == "attention":
                monkeypatch.setitem(cast("dict[str, Any]", node.attributes), "window", None)
    artifact.make(lost)
    monkeypatch.undo()
    with pytest.raises(ParityFailed) as caught:
        result.compare(output)
    (problem,) = caught.value.problems  # a step cannot lose it: its cache is as long as the window
    assert problem.startswith("forward")


def nested(graphs: Iterable[Graph]) -> Iterator[Graph]:
    """The graphs, and all that they call."""
    for graph in graphs:
        yield graph
        yield from nested(graph.subgraphs.values())


@pytest.mark.long
def test_a_context_may_end_before_the_window_does(data: Path, tmp_path: Path) -> None:
    source, output = with_window(data, tmp_path / "source", 40), tmp_path / "out"
    artifact.make(artifact.prepare(artifact.Request(source, output, context=20, check=True)))
    checked = json.loads((output / "manifest.json").read_text())["check"]
    assert (checked["tokens"], checked["unreached"]) == (20, [])


@pytest.mark.long
def test_what_the_check_could_not_reach_is_told(data: Path, tmp_path: Path) -> None:
    source = with_window(data, tmp_path / "source", 600)
    config = json.loads((source / "config.json").read_text()) | {"max_position_embeddings": 700}
    (source / "config.json").write_text(json.dumps(config))
    arguments = ["compile", str(source), "-o", str(tmp_path / "out"), "--check"]
    result = CliRunner().invoke(app, arguments)
    said = "checked with 24 tokens against the graph (the compilation, not the reading): relative"
    assert said in " ".join(result.stdout.split())
    assert "not verified" not in result.stderr, "the recipe is one of ours"
    told = "not checked: what the model computes otherwise beyond 600 tokens"
    assert told in " ".join(result.stderr.split())


@pytest.mark.long
def test_a_recipe_that_is_not_ours_is_said_to_be_unverified(data: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text('schema = 2\nname = "mine"\nextends = "llama"\n')
    arguments = ["compile", str(data / "tiny-llama"), "-o", str(tmp_path / "out"), "--check"]
    result = CliRunner().invoke(app, [*arguments, "--recipe", str(recipe)])
    assert result.exit_code == 0
    told = "the recipe itself was not verified; try --check transformers"
    assert told in " ".join(result.stderr.split())


def test_original_models_are_not_read_from_gguf_files(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    convert(prepare(Request(data / "tiny-llama", file)))
    asked = artifact.Request(file, tmp_path / "out", check=True, against="transformers")
    with pytest.raises(ConfigurationError, match="this is a GGUF file"):
        artifact.prepare(asked)


def test_a_machine_without_transformers_is_told_what_to_install(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(original_model, "PACKAGES", ("torch_that_is_nowhere",))
    arguments = ["compile", str(data / "tiny-llama"), "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*arguments, "--check", "transformers"])
    assert result.exit_code == 6
    said = " ".join(result.stderr.split())
    assert "--check transformers needs torch_that_is_nowhere" in said
    assert "pip install 'maxtool[transformers]'" in said


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
    assert check_lengths.tokens(turns, work, context) == expected


@pytest.mark.parametrize(
    ("name", "turns"),
    [("tiny-gemma3", (7,)), ("tiny-phi3-longrope", (16,)), ("tiny-llama3", ())],
)
def test_architectures_know_where_they_compute_otherwise(
    data: Path, tmp_path: Path, name: str, turns: tuple[int, ...]
) -> None:
    result = artifact.prepare(artifact.Request(data / name, tmp_path / "out"))
    assert result.contents.turns == turns


@pytest.mark.long
def test_forward_is_shown_fewer_tokens_where_its_logits_would_be_many(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An artifact for another machine has them recorded: a window must not fill a disk."""
    source, output = with_window(data, tmp_path / "source", 40), tmp_path / "out"
    result = artifact.prepare(artifact.Request(source, output))
    artifact.make(result)

    def recorded(largest: int) -> set[tuple[int, ...]]:
        monkeypatch.setattr(check, "LARGEST", largest)
        trials = check.trials_of(result.contents, Tolerance(1e-4, 1e-5))
        check.check(output, trials, here=False)
        with np.load(output / FILE) as arrays:
            return {array.shape for array in arrays.values()}

    in_turn = {(1, 35), (1, 1), (1,), (1, 12, 97)}
    assert recorded(46 * 97) >= in_turn | {(1, 46), (1, 46, 97)}
    assert recorded(46 * 97 - 1) >= in_turn | {(1, 24), (1, 24, 97)}


class Undefined(GraphRunner):
    """A reference whose results are NaN."""

    def run(self, *arguments: Any) -> dict[str, Any]:
        return {name: array * np.nan for name, array in super().run(*arguments).items()}


def test_a_reference_of_nan_proves_nothing(data: Path, tmp_path: Path) -> None:
    result = artifact.prepare(artifact.Request(data / "tiny-llama", tmp_path / "out"))
    reference = check.Reference(check.GRAPH, Undefined)
    with pytest.raises(ParityFailed, match="its graph computes is NaN or infinite") as caught:
        check.trials_of(result.contents, Tolerance(1e-4, 1e-5), reference)
    assert any(problem.startswith("prefill and decode: ") for problem in caught.value.problems)


@pytest.mark.parametrize("context", [2, 3, 4, 20])
def test_decode_is_called_whatever_the_context(data: Path, tmp_path: Path, context: int) -> None:
    request = artifact.Request(data / "tiny-llama", tmp_path / "out", context=context)
    trials = check.trials_of(artifact.prepare(request).contents, Tolerance(1e-4, 1e-5))
    (in_turn,) = (trial.calls for trial in trials.each if len(trial.calls) > 1)
    assert [call.entry for call in in_turn][:2] == ["prefill", "decode"]
    assert sum(call.inputs["input_ids"].shape[1] for call in in_turn) == context
