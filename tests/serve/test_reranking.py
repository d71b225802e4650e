"""``/v1/rerank``: the scores of a ranker, the best documents first."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from maxtool import artifact
from maxtool.runtime import loader
from tests.data.seeded import tensors
from tests.serve.conftest import ROOT, serving
from tests.serve.http_client import Client

PATH = "/v1/rerank"
QUERY = "Who ate the soup?"
DOCUMENTS = ["He sat down.", "He sat down, and ate the soup.", "Once upon a time", "He sat down."]
HIDDEN = 20


def with_head(folder: Path, labels: int) -> Path:
    """RoBERTa with a head of the shapes that transformers gives it, and random numbers."""
    shutil.copytree(ROOT / "tests" / "data" / "tiny-roberta", folder / "source")
    (folder / "source" / "modules.json").unlink()
    shapes = {f"classifier.dense.{name}": [HIDDEN] * count for name, count in ENDS.items()}
    shapes |= {"classifier.out_proj.weight": [labels, HIDDEN], "classifier.out_proj.bias": [labels]}
    file = folder / "source" / "model.safetensors"
    save_file({**load_file(file), **tensors(shapes, 1.0)}, file, {"format": "pt"})
    artifact.make(artifact.prepare(artifact.Request(folder / "source", folder / "made")))
    return folder / "made"


ENDS = {"weight": 2, "bias": 1}


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_head(tmp_path_factory.mktemp("ranker"), 1)


@pytest.fixture(scope="module")
def rankers(
    ranker: Path, folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    classifier = with_head(tmp_path_factory.mktemp("classifier"), 3)
    known = {**folders, "ranker": ranker, "classifier": classifier}
    with serving(known, "ranker", "classifier", "vectors", "one") as client:
        yield client


def test_the_best_come_first(rankers: Client, ranker: Path) -> None:
    asked = {"model": "ranker", "query": QUERY, "documents": DOCUMENTS}
    answer = rankers.good(PATH, asked)
    scores = loader.load(ranker).classify(DOCUMENTS, query=QUERY)[:, 0]
    order = sorted(range(len(DOCUMENTS)), key=lambda index: -scores[index])
    assert [each["index"] for each in answer["results"]] == order
    assert order.index(0) + 1 == order.index(3)  # equal ones in their order
    found = {each["index"]: each["relevance_score"] for each in answer["results"]}
    assert [found[index] for index in range(len(scores))] == pytest.approx(scores, rel=1e-6)
    assert all(each.keys() == {"index", "relevance_score"} for each in answer["results"])
    assert (answer["object"], answer["model"]) == ("list", "ranker")
    tokens = answer["usage"]["total_tokens"]
    assert tokens == answer["usage"]["prompt_tokens"] > 4 * len(DOCUMENTS)


def test_documents_may_be_objects_and_come_back(rankers: Client) -> None:
    asked = {"model": "ranker", "query": QUERY, "return_documents": True, "top_n": 2}
    answer = rankers.good(PATH, {**asked, "documents": [{"text": text} for text in DOCUMENTS]})
    assert len(answer["results"]) == 2
    for each in answer["results"]:
        assert each["document"] == {"text": DOCUMENTS[each["index"]]}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"query": None}, "query"),
        ({"documents": None}, "documents"),
        ({"documents": []}, "documents"),
        ({"documents": "text"}, "documents"),
        ({"documents": [1]}, "documents"),
        ({"documents": [{"title": "text"}]}, "documents"),
        ({"documents": ["a"] * 2049}, "documents"),
        ({"top_n": 0}, "top_n"),
        ({"return_documents": 1}, "return_documents"),
        ({"rank_fields": ["text"]}, "rank_fields"),
    ],
)
def test_what_is_refused(rankers: Client, change: dict[str, object], param: str) -> None:
    asked = {"model": "ranker", "query": QUERY, "documents": DOCUMENTS, **change}
    assert rankers.refused(400, PATH, asked)["param"] == param


def test_what_is_too_long(rankers: Client) -> None:
    for change in ({"documents": ["He sat down. " * 200]}, {"query": "He sat down. " * 200}):
        asked = {"model": "ranker", "query": QUERY, "documents": DOCUMENTS, **change}
        assert rankers.refused(400, PATH, asked)["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("classifier", "tells 3 classes apart"),
        ("vectors", "makes vectors, and no scores"),
        ("one", "writes text"),
    ],
)
def test_models_that_are_no_rankers(rankers: Client, model: str, why: str) -> None:
    asked = {"model": model, "query": QUERY, "documents": DOCUMENTS}
    assert why in rankers.refused(400, PATH, asked)["message"]


def test_a_ranker_makes_vectors_too(rankers: Client) -> None:
    answer = rankers.good("/v1/embeddings", {"model": "ranker", "input": DOCUMENTS})
    assert len(answer["data"]) == len(DOCUMENTS)
    json.dumps(answer)
