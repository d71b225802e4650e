"""Decoders that score a query with each document, by logits of two tokens or by a head."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from maxtool import artifact
from maxtool.cli.app import app
from maxtool.errors import ConfigurationError, MalformedFile
from maxtool.recipe.pair_template import jinja_of
from maxtool.runtime import loader
from maxtool.runtime.loader.chat import ChatTemplate
from maxtool.runtime.loader.classifier import Classifier
from tests.artifact.compiling import compiled, convert
from tests.artifact.measure import BOUND, Array, error
from tests.data.rankers import (
    CONTEXT,
    INSTRUCTION,
    MARKS,
    PLACES,
    classifier,
    ranker,
    save,
    tokenizer,
    without_scores,
)

QUERY = "Who ate the soup?"
DOCUMENTS = ["He sat down.", "He sat down, and ate the soup.", "", "yes no 世界"]
IDS = {"yes": tokenizer().token_to_id("yes"), "no": tokenizer().token_to_id("no")}


def put(query: str, document: str, instruction: str = INSTRUCTION) -> list[int]:
    """The ids of the template with its places filled."""
    text = PLACES.replace(INSTRUCTION, instruction)
    ids: list[int] = (
        tokenizer().encode(text.replace("{query}", query).replace("{document}", document)).ids
    )
    return ids


def scores_of_head(model: loader.Model, source: Path, rows: list[list[int]]) -> Array:
    """Scores of texts by the whole head, times the last vectors of the artifact."""
    from safetensors.numpy import load_file

    held = load_file(source / "model.safetensors")
    head = held.get("lm_head.weight", held["model.embed_tokens.weight"]).astype(np.float64)
    last = [model(input_ids=[ids])["last_hidden_state"][0, -1] for ids in rows]
    logits = np.stack(last) @ head.T
    found: Array = logits[:, IDS["yes"]] - logits[:, IDS["no"]]
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, loader.Model]]:
    known: dict[str, tuple[Path, loader.Model]] = {}

    def make(**options: Any) -> tuple[Path, loader.Model]:
        key = repr(options)
        if key not in known:
            folder = tmp_path_factory.mktemp("ranker")
            source = ranker(folder / "it", **options)
            known[key] = source, compiled(source, folder / "out")
        return known[key]

    return make


@pytest.mark.long
@pytest.mark.parametrize("tied", [True, False])
def test_scores_are_what_one_logit_has_over_the_other(
    tied: bool, made: Callable[..., tuple[Path, loader.Model]]
) -> None:
    source, model = made(tied=tied)
    rows = [put(QUERY, document) for document in DOCUMENTS]
    expected = scores_of_head(model, source, rows)
    logits = np.concatenate(list(Classifier(model, 3).stream(DOCUMENTS, QUERY)))
    assert error(logits[:, 0], expected) <= BOUND
    shares = model.classify(DOCUMENTS, query=QUERY, batch=3)
    np.testing.assert_allclose(shares[:, 0], 1 / (1 + np.exp(-expected)), rtol=1e-4)
    assert "lm_head.weight" not in {spec.name for spec in model.manifest.weights}


@pytest.mark.long
def test_ids_are_those_of_the_template(made: Callable[..., tuple[Path, loader.Model]]) -> None:
    _, model = made()
    for options, words in (
        ({}, INSTRUCTION),
        ({"prompt": "other"}, "Find what contradicts it"),
        ({"prompt": "none"}, "By the query"),
        ({"instruction": "Judge"}, "Judge"),
    ):
        found = Classifier(model, **options)._encode(DOCUMENTS, QUERY)
        assert [list(row.ids) for row in found] == [put(QUERY, one, words) for one in DOCUMENTS]


def test_marks_in_documents_are_text(made: Callable[..., tuple[Path, loader.Model]]) -> None:
    _, model = made()
    (row,) = Classifier(model)._encode([f"soup{MARKS[2]}"], QUERY)
    end = tokenizer().token_to_id(MARKS[2])
    assert list(row.ids).count(end) == put(QUERY, "").count(end)


def test_long_pairs_keep_their_end(made: Callable[..., tuple[Path, loader.Model]]) -> None:
    _, model = made()
    classifier = Classifier(model)
    short, long = classifier._encode(["soup", "soup " * 200], QUERY)
    end = tokenizer().encode(PLACES.split("{document}")[1]).ids
    assert len(long.ids) == CONTEXT
    assert list(long.ids) == put(QUERY, "soup " * 200)[: CONTEXT - len(end)] + end
    assert list(short.ids) == put(QUERY, "soup")
    assert classifier.truncated == 1


def test_one_logit_alone(made: Callable[..., tuple[Path, loader.Model]], tmp_path: Path) -> None:
    source, model = made(false=None)
    both = made()[1]
    ids = [put(QUERY, one) for one in DOCUMENTS]
    alone = np.concatenate(list(Classifier(model).stream(ids)))
    assert alone.shape == (len(ids), 1)
    assert not np.allclose(alone, np.concatenate(list(Classifier(both).stream(ids))))
    result = CliRunner().invoke(app, ["convert", str(source), "-o", str(tmp_path / "a.gguf")])
    assert result.exit_code == 4
    assert "this model gives one" in result.stderr


@pytest.mark.long
@pytest.mark.parametrize("tied", [True, False])
def test_through_gguf(
    tied: bool, made: Callable[..., tuple[Path, loader.Model]], tmp_path: Path
) -> None:
    source, model = made(tied=tied)
    told = convert(source, tmp_path / "model.gguf")
    assert ("lm_head.weight is not written" in told) is not tied
    convert(tmp_path / "model.gguf", tmp_path / "back")
    expected = model.classify(DOCUMENTS, query=QUERY)
    other = model.classify(DOCUMENTS, query=QUERY, instruction="Judge")
    for number, path in enumerate((tmp_path / "model.gguf", tmp_path / "back")):
        found = compiled(path, tmp_path / str(number))
        np.testing.assert_array_equal(found.classify(DOCUMENTS, query=QUERY), expected)
        judged = found.classify(DOCUMENTS, query=QUERY, instruction="Judge")
        np.testing.assert_array_equal(judged, other)
    convert(tmp_path / "back", tmp_path / "again.gguf")
    assert "rounded" not in convert(source, tmp_path / "whole")
    assert (tmp_path / "whole" / "additional_chat_templates" / "reranker.jinja").is_file()


@pytest.mark.long
@pytest.mark.parametrize(("labels", "scores"), [(1, "sigmoid"), (3, "softmax")])
def test_a_head_for_labels(labels: int, scores: str, tmp_path: Path) -> None:
    source = classifier(tmp_path / "it", labels)
    model = compiled(source, tmp_path / "out")
    assert model.manifest.scores == scores
    assert model.manifest.labels == [f"class {number}" for number in range(labels)]
    ids = [put(QUERY, one) for one in DOCUMENTS]
    logits = np.concatenate(list(Classifier(model).stream(ids)))
    from safetensors.numpy import load_file

    head = load_file(source / "model.safetensors")["score.weight"].astype(np.float64)
    last = np.stack([model(input_ids=[row])["last_hidden_state"][0, -1] for row in ids])
    assert error(logits, last @ head.T) <= BOUND
    pair = tokenizer().encode(QUERY, DOCUMENTS[0]).ids
    scored = Classifier(model)._encode(DOCUMENTS[:1], QUERY)
    assert list(scored[0].ids) == pair
    if labels == 1:
        return
    convert(source, tmp_path / "model.gguf")
    convert(tmp_path / "model.gguf", tmp_path / "back")
    for number, path in enumerate((tmp_path / "model.gguf", tmp_path / "back")):
        found = compiled(path, tmp_path / str(number))
        assert found.manifest.labels == model.manifest.labels
        np.testing.assert_array_equal(np.concatenate(list(Classifier(found).stream(ids))), logits)


@pytest.mark.long
@pytest.mark.parametrize("name", ["tiny-llama-tied", "tiny-gemma2", "tiny-mistral"])
def test_other_decoders(name: str, tmp_path: Path) -> None:
    source = ranker(tmp_path / "it", name=name, tied=name != "tiny-mistral")
    model = compiled(source, tmp_path / "out")
    assert model.classify(DOCUMENTS, query=QUERY).shape == (len(DOCUMENTS), 1)
    result = CliRunner().invoke(app, ["convert", str(source), "-o", str(tmp_path / "a.gguf")])
    assert result.exit_code == 4
    assert "llama.cpp has no place for scores of texts" in result.stderr


@pytest.mark.long
def test_without_the_module_it_writes_texts(tmp_path: Path) -> None:
    source = ranker(tmp_path / "it")
    without_scores(source)
    assert {"prefill", "decode"} <= {*compiled(source, tmp_path / "out").manifest.entries}


@pytest.mark.long
def test_what_to_run_has_a_query(tmp_path: Path) -> None:
    source, output = ranker(tmp_path / "it"), tmp_path / "out"
    result = CliRunner().invoke(app, ["compile", str(source), "-o", str(output)])
    assert result.exit_code == 0, result.stderr
    _, *command = shlex.split(result.stderr.partition("run it: ")[2])
    ran = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert 0 <= float(ran.stdout) <= 1


def test_at_the_terminal(made: Callable[..., tuple[Path, loader.Model]]) -> None:
    _, model = made()
    command = ["embed", str(model.manifest.folder), "--text", DOCUMENTS[0], "--text", DOCUMENTS[1]]
    result = CliRunner().invoke(app, [*command, "--query", QUERY, "--instruction", "Judge"])
    assert result.exit_code == 0, result.stderr
    expected = model.classify(DOCUMENTS[:2], query=QUERY, instruction="Judge")[:, 0]
    assert [float(line) for line in result.stdout.split()] == pytest.approx(list(expected))
    for more, said in (
        ([], "the model scores documents beside a query"),
        (["--query", QUERY, "--prompt", "third"], "its prompts: usual, other"),
        (["--query", QUERY, "--prompt", "usual", "--instruction", "Judge"], "not both"),
    ):
        result = CliRunner().invoke(app, [*command, *more])
        assert result.exit_code != 0
        assert said in result.stderr


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("1_LogitScore/config.json", {"false_token_id": 3}, "without true_token_id"),
        ("1_LogitScore/config.json", {"true_token_id": -1}, "true_token_id = -1"),
        ("1_LogitScore/config.json", {"true_token_id": 9000}, "score_tokens has token 9000"),
        (
            "1_LogitScore/config.json",
            {"true_token_id": 3, "false_token_id": 3},
            "one token, or two different ones",
        ),
        (
            "1_LogitScore/config.json",
            {"true_token_id": 3, "module_input_name": "logits"},
            "score_input_name = 'logits' is not supported",
        ),
        (
            "config_sentence_transformers.json",
            {"activation_fn": "torch.nn.modules.activation.Tanh"},
            "activation_fn = 'torch.nn.modules.activation.Tanh' is not supported",
        ),
        (
            "sentence_bert_config.json",
            {"processing_kwargs": {"chat_template": {"chat_template": "third"}}},
            "there is no chat template 'third'",
        ),
        (
            "sentence_bert_config.json",
            {"modality_config": {"message": {"format": "structured"}}},
            "format 'structured'",
        ),
    ],
)
def test_what_does_not_fit(file: str, content: object, said: str, tmp_path: Path) -> None:
    source = ranker(tmp_path / "it")
    save(source / file, content)
    with pytest.raises((ConfigurationError, MalformedFile)) as refused:
        artifact.prepare(artifact.Request(source, tmp_path / "out"))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("calls", "context"),
    [
        ({}, CONTEXT),
        ({"chat_template": {"max_length": 200, "padding": True, "return_tensors": "pt"}}, 200),
        ({"chat_template": {"max_length": 200}, "text": {"max_length": 210}}, 200),
        ({"text": {"max_length": 210}, "common": {"max_length": 220}}, 210),
        ({"chat_template": {"truncation": False}, "text": {"max_length": 210}}, CONTEXT),
    ],
)
def test_pairs_are_cut_where_calls_of_the_tokenizer_say(
    calls: dict[str, Any], context: int, tmp_path: Path
) -> None:
    source = ranker(tmp_path / "it")
    save(source / "sentence_bert_config.json", {"processing_kwargs": calls})
    build = artifact.prepare(artifact.Request(source, tmp_path / "out"))
    manifest = build.contents.facts
    assert build.plan.context == context
    assert manifest["pair_template"]["variables"] == {}


@pytest.mark.parametrize(
    "text", ["{{query}} {{document}}", "{%{query}%} {{{document}#}", "{#{query}{", PLACES]
)
def test_texts_with_places_as_jinja(text: str) -> None:
    """Braces around a place are text, as llama.cpp takes them."""
    said = [{"role": role, "content": f"{{{role}}}"} for role in ("query", "document")]
    assert ChatTemplate(jinja_of(text), None).render(said) == text


@pytest.mark.long
def test_a_template_without_a_place_is_refused(tmp_path: Path) -> None:
    source = ranker(tmp_path / "it")
    (source / "additional_chat_templates" / "reranker.jinja").write_text(
        "{{ messages[-1].content }}"
    )
    model = compiled(source, tmp_path / "out")
    with pytest.raises(loader.DoesNotFit, match="leaves out the query"):
        model.classify(DOCUMENTS, query=QUERY)


@pytest.mark.long
def test_logits_that_are_the_score_themselves(tmp_path: Path) -> None:
    source = ranker(tmp_path / "it")
    file = source / "config_sentence_transformers.json"
    told = json.loads(file.read_text())
    save(file, {**told, "activation_fn": "torch.nn.modules.linear.Identity"})
    model = compiled(source, tmp_path / "out")
    logits = np.concatenate(list(Classifier(model).stream(DOCUMENTS, QUERY)))
    np.testing.assert_array_equal(model.classify(DOCUMENTS, query=QUERY), logits)
    assert "scores = 'none' is not written" in convert(source, tmp_path / "model.gguf")


@pytest.mark.peers
@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny-qwen3", "tiny-gemma2"])
@pytest.mark.parametrize("false", ["no", None])
def test_transformers_computes_the_same(name: str, false: str | None, tmp_path: Path) -> None:
    """Padding before texts, as sentence-transformers has it, and the template of the tokenizer."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    source = ranker(tmp_path / "it", name=name, false=false)
    tokens = transformers.AutoTokenizer.from_pretrained(source, padding_side="left")
    original = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    asked = [
        [
            {"role": "system", "content": INSTRUCTION},
            {"role": "query", "content": QUERY},
            {"role": "document", "content": one},
        ]
        for one in DOCUMENTS
    ]
    given = tokens.apply_chat_template(
        asked, chat_template="reranker", padding=True, return_dict=True, return_tensors="pt"
    )
    with torch.inference_mode():
        logits = original.eval()(**given).logits[:, -1].numpy()
    expected = logits[:, IDS["yes"]] - (logits[:, IDS["no"]] if false else 0)
    model = compiled(source, tmp_path / "out", against="transformers")
    rows = Classifier(model)._encode(DOCUMENTS, QUERY)
    pairs = zip(given["input_ids"].tolist(), given["attention_mask"].tolist(), strict=True)
    assert [list(row.ids) for row in rows] == [
        [token for token, there in zip(ids, mask, strict=True) if there] for ids, mask in pairs
    ]
    found = np.concatenate(list(Classifier(model).stream(DOCUMENTS, QUERY)))[:, 0]
    assert error(found, expected) <= BOUND
