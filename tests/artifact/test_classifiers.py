"""Compiled classifiers score texts, and pairs of them, as transformers does with their weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from maxtool import artifact
from maxtool.cli.app import app
from maxtool.errors import ModelMismatch
from maxtool.runtime import loader
from maxtool.runtime.loader.classifier import sigmoid, softmax
from tests.artifact.making import made
from tests.artifact.measure import BOUND, error
from tests.data.seeded import classified_inputs, tensors

DATA = Path(__file__).resolve().parents[1] / "data"
RECORDED = dict(np.load(DATA / "classifiers.npz"))
CASES: dict[str, Any] = json.loads(RECORDED.pop("cases").tobytes())
RECIPES = (
    "Bert-0",
    "Roberta-1",
    "DistilBert-3",
    "Electra-5",
    "ModernBert-12",
    "MPNet-1",
    "DebertaV2-10",
    "Gte-1",
)
LABELS = ["bad", "fair", "go\x1bod"]


def written(folder: Path, case: str) -> Path:
    """The checkpoint of a case."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CASES[case]["config"]))
    save_file(tensors(CASES[case]["shapes"], 1.0), folder / "model.safetensors")
    return folder


@pytest.mark.long
@pytest.mark.sampled
@pytest.mark.parametrize("case", RECIPES)
def test_logits(case: str, tmp_path: Path) -> None:
    model = loader.load(made(written(tmp_path / "model", case), check=True))
    given = classified_inputs(CASES[case]["config"]["model_type"])
    actual = model.run("classify", given)["logits"]
    assert error(actual, RECORDED[f"{case}/classify.logits"]) <= BOUND


@pytest.mark.peers
@pytest.mark.parametrize("case", RECIPES)
def test_check_with_transformers(case: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    source = written(tmp_path / "model", case)
    command = ["compile", str(source), "-o", str(tmp_path / "out"), "--check", "transformers"]
    result = CliRunner().invoke(app, [*command, "--json"])
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["check"]["relative_error"] < 1e-5


@pytest.mark.parametrize("case", CASES)
def test_what_makes_scores_is_what_the_pipeline_of_transformers_takes(
    case: str, tmp_path: Path
) -> None:
    config = CASES[case]["config"]
    kinds = {"multi_label_classification": "sigmoid", "regression": "none"}
    count = len(RECORDED[f"{case}/classify.logits"][0])
    expected = kinds.get(config.get("problem_type"), "sigmoid" if count == 1 else "softmax")
    planned = artifact.prepare(artifact.Request(written(tmp_path / "model", case), tmp_path / "o"))
    assert planned.contents.facts["scores"] == expected


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Artifacts of tiny models that have a tokenizer, with a head of so many labels."""

    @cache
    def make(name: str, count: int, dense: bool) -> Path:
        source = tmp_path_factory.mktemp("classifier") / "model"
        shutil.copytree(DATA / name, source, ignore=shutil.ignore_patterns("*.npz", "modules.json"))
        config = json.loads((source / "config.json").read_text())
        if count == len(LABELS):
            config["id2label"] = {str(number): label for number, label in enumerate(LABELS)}
        (source / "config.json").write_text(json.dumps(config))
        out = "classifier.out_proj" if dense else "classifier"
        shapes = {f"{out}.weight": [count, 20], f"{out}.bias": [count]}
        shapes |= (
            {"classifier.dense.weight": [20, 20], "classifier.dense.bias": [20]} if dense else {}
        )
        file = source / "model.safetensors"
        save_file({**load_file(file), **tensors(shapes, 1.0)}, file, {"format": "pt"})
        return made(source)

    return make


@pytest.fixture
def bert(compiled: Callable[..., Path]) -> Path:
    return compiled("tiny-bert", 3, False)


@pytest.fixture
def ranker(compiled: Callable[..., Path]) -> Path:
    return compiled("tiny-roberta", 1, True)


def run(*arguments: object) -> tuple[str, str]:
    result = CliRunner().invoke(app, ["embed", *map(str, arguments)])
    assert result.exit_code == 0, result.stderr
    return result.stdout, result.stderr


def refused(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["embed", *map(str, arguments)])
    assert result.exit_code != 0
    return result.stderr


def logits_of(model: loader.Model, text: str, query: str | None = None) -> np.ndarray:
    """The logits of one text or pair, encoded without maxtool's own batches."""
    encoder = model.open_tokenizer()
    found = encoder.encode(text) if query is None else encoder.encode(query, text)
    given = {"input_ids": found.ids, "attention_mask": found.attention_mask}
    if "token_type_ids" in {spec.name for spec in model.entry("classify").inputs}:
        given["token_type_ids"] = found.type_ids
    arrays = {name: np.array([each], np.int64) for name, each in given.items()}
    return model.run("classify", arrays)["logits"][0]


def test_classes_with_probabilities(bert: Path) -> None:
    model = loader.load(bert)
    expected = softmax(np.stack([logits_of(model, text) for text in ("he sat", "down.")]))
    actual = model.classify(["he sat", "down."])
    np.testing.assert_allclose(actual, expected, rtol=1e-4)
    order = np.argsort(-expected[0])
    stdout, _ = run(bert, "--text", "he sat")
    lines = [line.split("%") for line in stdout.splitlines()]
    shown = [label.strip() for _, label in lines]
    assert shown == [["bad", "fair", r"go\x1bod"][at] for at in order]
    assert [float(share) for share, _ in lines] == pytest.approx(100 * expected[0][order], abs=0.01)
    assert run(bert, "--text", "he sat", "--top-k", 1)[0].splitlines() == stdout.splitlines()[:1]


def test_pairs_have_two_types_of_tokens(bert: Path) -> None:
    model = loader.load(bert)
    pair = softmax(logits_of(model, "he sat", "down."))
    np.testing.assert_allclose(model.classify("he sat", query="down.")[0], pair, rtol=1e-4)
    assert not np.allclose(pair, softmax(logits_of(model, "down. he sat")), rtol=1e-2)


def test_scores_of_a_ranker_are_a_number_a_line(ranker: Path, tmp_path: Path) -> None:
    model = loader.load(ranker)
    texts = ["he sat", "down.", "a longer text than that"]
    (tmp_path / "texts").write_text("\n".join(texts) + "\n")
    expected = [float(sigmoid(logits_of(model, text, "who sat"))[0]) for text in texts]
    stdout, stderr = run(ranker, "--query", "who sat", "--file", tmp_path / "texts")
    assert [*map(float, stdout.splitlines())] == pytest.approx(expected, rel=1e-4)
    assert "3 texts" in stderr
    told = json.loads(run(ranker, "--query", "who sat", "--text", "he sat", "--json")[0])
    assert (told["schema"], told["query"], told["count"]) == ("maxtool.labels/1", "who sat", 1)
    (row,) = told["texts"]
    assert row["labels"][0]["score"] == pytest.approx(expected[0], rel=1e-4)
    assert float(sigmoid(np.array(row["logits"]))[0]) == pytest.approx(expected[0], rel=1e-4)


def test_long_pairs_are_cut_to_the_context(bert: Path) -> None:
    _, stderr = run(bert, "--query", "he sat " * 60, "--text", "down. " * 60)
    assert "1 of 1 text was cut to the context of the model" in stderr


def test_vectors_of_a_classifier_go_to_a_file(bert: Path, tmp_path: Path) -> None:
    output = tmp_path / "vectors.npy"
    run(bert, "--text", "he sat", "-o", output)
    np.testing.assert_allclose(np.load(output), loader.load(bert).embed("he sat"), rtol=1e-5)


@pytest.mark.long
def test_what_does_not_fit(bert: Path, data: Path, tmp_path: Path) -> None:
    vectors = made_without_head(data, tmp_path)
    assert "pairs with a --query are scored" in refused(vectors, "--query", "a", "--text", "b")
    assert "--query goes with --text or --file" in refused(bert, "--query", "a", "--ids", "1,2")
    assert "--top-k 0: it is at least 1" in refused(bert, "--text", "a", "--top-k", 0)
    with pytest.raises(loader.DoesNotFit, match="no entry 'classify'"):
        loader.load(vectors).classify("a")


def made_without_head(data: Path, tmp_path: Path) -> Path:
    source = tmp_path / "model"
    shutil.copytree(data / "tiny-bert", source)
    return made(source)


def test_a_head_that_lacks_a_part_is_refused(tmp_path: Path) -> None:
    source = written(tmp_path / "model", "Roberta-0")
    file = source / "model.safetensors"
    kept = {name: each for name, each in load_file(file).items() if "dense.bias" not in name}
    save_file(kept, file, {"format": "pt"})
    with pytest.raises(ModelMismatch, match=r"classifier\.dense\.bias"):
        artifact.prepare(artifact.Request(source, tmp_path / "out"))
    file.unlink()
    headless = {
        name: each for name, each in CASES["Bert-0"]["shapes"].items() if "pooler" not in name
    }
    save_file(tensors(headless, 1.0), file)
    (source / "config.json").write_text(json.dumps(CASES["Bert-0"]["config"]))
    with pytest.raises(Exception, match="no pooler that makes the vector"):
        artifact.prepare(artifact.Request(source, tmp_path / "out"))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"labels": ["one"]}, "there are 1 labels for"),
        ({"scores": "best"}, "'scores' is 'best', none of softmax, sigmoid, none"),
        ({"scores": 3}, "scores"),
    ],
)
def test_manifests_that_are_damaged(
    bert: Path, tmp_path: Path, change: dict[str, object], what: str
) -> None:
    shutil.copytree(bert, tmp_path / "artifact")
    file = tmp_path / "artifact" / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(loader.RunError, match=what):
        loader.load(tmp_path / "artifact", check=False)


@pytest.mark.long
@pytest.mark.sampled
@pytest.mark.parametrize("count", [1, 2, 3])
def test_heads_with_their_labels_go_through_gguf(
    compiled: Callable[..., Path], tmp_path: Path, count: int
) -> None:
    """Names, keys and labels as llama.cpp's converter has them; two without names stay unsaid."""
    whole = compiled("tiny-roberta", count, True)
    source, there, back = whole.with_name("model"), tmp_path / "x.gguf", tmp_path / "back"
    for origin, target in ((source, there), (there, back)):
        result = CliRunner().invoke(app, ["convert", str(origin), "-o", str(target)])
        assert result.exit_code == 0, result.stderr
    reader = gguf.GGUFReader(there)
    named = {tensor.name for tensor in reader.tensors if tensor.name.startswith("cls")}
    assert named == {"cls.weight", "cls.bias", "cls.output.weight", "cls.output.bias"}
    labels = reader.get_field("bert.classifier.output_labels")
    assert (None if labels is None else labels.contents()) == (LABELS if count == 3 else None)
    given = classified_inputs("roberta")
    expected = loader.load(whole).run("classify", given)["logits"]
    for origin in (there, back):
        output = tmp_path / f"of-{origin.name}"
        artifact.make(artifact.prepare(artifact.Request(origin, output)))
        model = loader.load(output)
        np.testing.assert_array_equal(model.run("classify", given)["logits"], expected)
        assert model.manifest.labels == loader.load(whole).manifest.labels


@pytest.mark.parametrize(("name", "why"), [("tiny-bert", "the pooler before a head")])
def test_a_head_that_llama_cpp_has_no_place_for_is_left_out_aloud(
    compiled: Callable[..., Path], tmp_path: Path, name: str, why: str
) -> None:
    source = compiled(name, 3, False).with_name("model")
    command = ["convert", str(source), "-o", str(tmp_path / "x.gguf")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0
    assert f"n_labels = 3 is not written: llama.cpp has no place for {why}" in result.stderr
    names = {tensor.name for tensor in gguf.GGUFReader(tmp_path / "x.gguf").tensors}
    assert not any(each.startswith("cls") for each in names)
