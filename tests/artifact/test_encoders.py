"""Compiled encoders compute what transformers computed from the same checkpoint."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from maxtool import artifact
from maxtool.artifact import check
from maxtool.cli.app import app
from maxtool.errors import ParityFailed
from maxtool.runtime import loader
from maxtool.runtime.loader.recorded_checks import Tolerance
from tests.artifact.measure import BOUND, Array, Compile, error, recorded
from tests.effort import thinned

ROOT = Path(__file__).resolve().parents[2]
TINY = ("tiny-bert", "tiny-roberta", "tiny-distilbert", "tiny-nomic-bert")
OUTPUTS = ("last_hidden_state", "pooler_output")


def assert_recorded(artifact: Path, folder: Path) -> None:
    """Compare ``forward``, padding included, and ``embed`` with what was recorded."""
    model, expected = loader.load(artifact), recorded(folder)
    inputs = {spec.name: expected[spec.name] for spec in model.entry("forward").inputs}
    actual = model(**inputs)
    assert set(actual) == set(OUTPUTS) & set(expected)
    for name, array in actual.items():
        assert error(array, expected[name]) <= BOUND, name


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(TINY, "tiny-bert", "tiny-distilbert"))
def test_hidden_states(compiled: Compile, data: Path, name: str) -> None:
    assert_recorded(compiled(data / name, context=40), data / name)


def test_what_sentence_transformers_says(compiled: Compile, data: Path) -> None:
    """The first token's vector, scaled, of texts that are cut to 16 tokens."""
    expected = recorded(data / "tiny-roberta")
    model = loader.load(compiled(data / "tiny-roberta"))
    assert model.manifest.context == 16
    ids, mask = expected["input_ids"][1:, :16], expected["attention_mask"][1:, :16]
    first = expected["last_hidden_state"][1:, 0]
    actual = model.run("embed", {"input_ids": ids, "attention_mask": mask})["embeddings"]
    assert error(actual, first / np.linalg.norm(first, axis=1, keepdims=True)) <= BOUND


@pytest.mark.long
def test_the_configuration_that_transformers_5_writes(
    compiled: Compile, data: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(data / "tiny-nomic-bert", folder)
    (folder / "config.newer.json").replace(folder / "config.json")
    assert_recorded(compiled(folder), folder)


@pytest.mark.long
def test_one_vector_of_a_text_is_the_mean_of_its_tokens(compiled: Compile, data: Path) -> None:
    expected = recorded(data / "tiny-distilbert")
    ids, mask = expected["input_ids"], expected["attention_mask"]
    arrays = {"input_ids": ids, "attention_mask": mask}
    model = loader.load(compiled(data / "tiny-distilbert"))
    actual = model.run("embed", arrays)["embeddings"]
    assert error(actual, mean(expected["last_hidden_state"], mask)) <= BOUND


def mean(hidden: Array, mask: Array) -> Array:
    """The mean of the tokens that are there."""
    total: Array = (hidden * mask[..., None]).sum(1)
    return total / mask.sum(1)[:, None]


def test_what_the_loader_refuses(compiled: Compile, data: Path) -> None:
    model = loader.load(compiled(data / "tiny-distilbert"))
    ids, ones = np.full((1, 3), 5), np.ones((1, 3), np.int64)
    for name, array in (("input_ids", ids * 40), ("attention_mask", ones * 2)):
        arrays = {"input_ids": ids, "attention_mask": ones, name: array}
        with pytest.raises(loader.DoesNotFit, match=name):
            model.run("embed", arrays)
    long = np.full((1, 41), 5)
    with pytest.raises(loader.DoesNotFit, match="seq is 41; the model takes at most 40"):
        model.run("embed", {"input_ids": long, "attention_mask": np.ones_like(long)})


@pytest.mark.reference
@pytest.mark.parametrize("config", ["config.json", "config.older.json"])
def test_reference(compiled: Compile, reference: Path, tmp_path: Path, config: str) -> None:
    folder = tmp_path / "bert"
    shutil.copytree(reference / "bert", folder)
    folder.chmod(0o755)
    (folder / "config.json").unlink()
    shutil.copyfile(reference / "bert" / config, folder / "config.json")
    model, expected = loader.load(compiled(folder)), recorded(folder)
    ids, mask = expected["input_ids"], expected["attention_mask"]
    actual = model(input_ids=ids, attention_mask=mask, token_type_ids=np.zeros_like(ids))
    for name in OUTPUTS:
        assert error(actual[name], expected[name]) <= BOUND
    arrays = {"input_ids": ids, "attention_mask": mask}
    embeddings = model.run("embed", arrays)["embeddings"]
    assert error(embeddings, mean(expected["last_hidden_state"], mask)) <= BOUND


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(TINY, "tiny-roberta", "tiny-nomic-bert"))
def test_check_passes(data: Path, tmp_path: Path, name: str) -> None:
    command = ["compile", str(data / name), "-o", str(tmp_path / "out"), "--check", "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["check"]["relative_error"] < 1e-5


@pytest.mark.long
def test_check_sees_a_wrong_weight(data: Path, tmp_path: Path) -> None:
    """Two tensors of one shape exchanged between the graph and the weights of the artifact."""
    result = artifact.prepare(artifact.Request(data / "tiny-bert", tmp_path / "out"))
    artifact.make(result)
    query, key = "layers.0.attn.q.weight", "layers.0.attn.k.weight"
    exchanged, read = {query: key, key: query}, result.contents.read
    other = replace(result.contents, read=lambda name: read(exchanged.get(name, name)))
    with pytest.raises(ParityFailed) as caught:
        trials = check.trials_of(other, Tolerance(1e-4, 1e-5))
        check.check(tmp_path / "out", trials, here=True)
    names = ("forward, last_hidden_state", "forward, pooler_output", "embed, embeddings")
    for name, problem in zip(names, caught.value.problems, strict=True):
        assert problem.startswith(f"{name}: relative error")


@pytest.mark.long
def test_pooling_and_normalisation_may_be_asked_for(compiled: Compile, data: Path) -> None:
    folder = compiled(data / "tiny-distilbert", pooling="max", normalize=True, check=True)
    expected = recorded(data / "tiny-distilbert")
    ids, mask = expected["input_ids"], expected["attention_mask"]
    hidden = np.where(mask[..., None] == 1, expected["last_hidden_state"], -np.inf).max(1)
    arrays = {"input_ids": ids, "attention_mask": mask}
    actual = loader.load(folder).run("embed", arrays)["embeddings"]
    assert error(actual, hidden / np.linalg.norm(hidden, axis=1, keepdims=True)) <= BOUND


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("tiny-llama", ["--no-normalize"], "--normalize is for models that make vectors"),
        ("tiny-llama", ["--normalize"], "--normalize is for models that make vectors"),
        ("tiny-bert", ["--pooling", "sum"], "'sum' is not one of mean, cls, max, last"),
    ],
)
def test_pooling_that_cannot_be(
    data: Path, tmp_path: Path, name: str, arguments: list[str], said: str
) -> None:
    command = ["compile", str(data / name), "-o", str(tmp_path / "out"), *arguments]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize("name", ["tiny-bert", "tiny-distilbert", "tiny-roberta"])
def test_what_is_not_given_has_a_default(compiled: Compile, data: Path, name: str) -> None:
    """Default to no padding, and to all tokens of the first type."""
    model, ids = loader.load(compiled(data / name)), np.array([[5, 6, 7], [8, 9, 10]])
    full = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    for entry in ("forward", "embed"):
        taken = {spec.name for spec in model.entry(entry).inputs}
        types = {"token_type_ids": np.zeros_like(ids)} if "token_type_ids" in taken else {}
        whole = model.run(entry, full | types)
        for inputs in ({"input_ids": ids}, full, {"input_ids": ids} | types):
            result = model.run(entry, inputs)
            for output, array in whole.items():
                np.testing.assert_array_equal(result[output], array)
    with pytest.raises(loader.BadInput, match="missing input_ids"):
        model.run("forward", {"attention_mask": np.ones_like(ids)})
    with pytest.raises(loader.BadInput, match="with seq 3"):
        model.run("forward", {"input_ids": ids, "attention_mask": [[1, 1], [1, 1]]})


@pytest.mark.parametrize("program", ["run.py", "maxtool run"])
def test_an_encoder_fed_ids_alone(
    compiled: Compile, data: Path, tmp_path: Path, program: str
) -> None:
    folder, source = compiled(data / "tiny-bert"), tmp_path / "x.npz"
    np.savez(source, input_ids=[[5, 6, 7]])
    start = [f"{folder}/run.py"] if program == "run.py" else ["-m", "maxtool", "run", str(folder)]
    command = [sys.executable, *start, "--inputs", str(source), "--output", str(tmp_path / "y.npz")]
    subprocess.run(command, check=True, capture_output=True)
    expected = loader.load(folder)(input_ids=[[5, 6, 7]])["last_hidden_state"]
    with np.load(tmp_path / "y.npz") as actual:
        np.testing.assert_array_equal(actual["last_hidden_state"], expected)
