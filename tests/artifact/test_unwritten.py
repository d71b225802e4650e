"""Tokens that texts are written without, as ``generation_config.json`` lists them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool import artifact, conversion
from maxtool.errors import ConfigurationError
from maxtool.runtime import loader
from maxtool.runtime.loader.manifest import CHECKSUM
from maxtool.runtime.loader.unwritten import Unwritten
from maxtool.weights import TensorSpec, open_checkpoint
from maxtool.weights.formats import gguf
from tests.parity.peers import torch

__all__ = ["torch"]  # the fixture

PROMPT, COUNT = [5, 9, 3, 17], 8


def planned(source: Path, said: dict[str, Any] | None, **config: Any) -> artifact.Build:
    """Plan a small model whose texts are written as a file says."""
    written = json.loads((source / "config.json").read_text()) | config
    (source / "config.json").write_text(json.dumps(written))
    if said is not None:
        (source / "generation_config.json").write_text(json.dumps(said))
    return artifact.prepare(artifact.Request(source, source.with_name("out")))


@pytest.fixture
def source(data: Path, tmp_path: Path) -> Path:
    """A small model, of which 97 tokens have logits."""
    return shutil.copytree(data / "tiny-llama", tmp_path / "source")


def fact(build: artifact.Build) -> Any:
    return build.contents.facts.get("unwritten")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (None, None),
        ({}, None),
        ({"suppress_tokens": None, "begin_suppress_tokens": []}, None),
        ({"suppress_tokens": [7, 3, 7]}, {"ever": [3, 7]}),
        ({"begin_suppress_tokens": [2]}, {"first": [2]}),
        ({"suppress_tokens": [-1, 10**6, 4]}, {"ever": [4]}),  # transformers leaves them alone
    ],
)
def test_tokens_of_the_file(source: Path, said: dict[str, Any] | None, expected: Any) -> None:
    assert fact(planned(source, said)) == expected


def test_tokens_of_the_configuration_where_there_is_no_such_file(source: Path) -> None:
    assert fact(planned(source, None, suppress_tokens=[3])) == {"ever": [3]}
    assert fact(planned(source, {}, suppress_tokens=[3])) is None


@pytest.mark.parametrize("value", [3, "3", [1.5], [True], [[3]], {"3": 1}])
def test_what_is_no_list_of_tokens(source: Path, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"suppress_tokens = .* is not a list of tokens"):
        planned(source, {"suppress_tokens": value})


def test_tokens_of_a_gguf_file(source: Path, tmp_path: Path) -> None:
    setting = {"tokenizer.ggml.suppress_tokens": np.array([3, 7], np.int32)}
    conversion.convert(conversion.prepare(conversion.Request(source, tmp_path / "a.gguf")))
    file = open_checkpoint(tmp_path / "a.gguf")
    specs = [TensorSpec(i.name, i.dtype, i.shape, i.encoding) for i in file.tensors.values()]
    payloads = [file.read(name).data for name in file.tensors]
    gguf.write(tmp_path / "b.gguf", specs, payloads, {**file.metadata, **setting})
    request = artifact.Request(tmp_path / "b.gguf", tmp_path / "out")
    assert fact(artifact.prepare(request)) == {"ever": [3, 7]}


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({"no_repeat_ngram_size": 3}, "no_repeat_ngram_size = 3 of {} is not done"),
        ({"bad_words_ids": [[4]]}, "bad_words_ids = [[4]] of {} is not done"),
        ({"forced_bos_token_id": 0}, "forced_bos_token_id = 0 of {} is not done"),
        ({"forced_eos_token_id": [1]}, "forced_eos_token_id = [1] of {} is not done"),
        ({"min_new_tokens": 5}, "min_new_tokens = 5 of {} is not done"),
        (
            {"repetition_penalty": 1.05},
            "repetition_penalty = 1.05 of {} is not done unless it is asked for: "
            "--repetition-penalty",
        ),
    ],
)
def test_what_is_not_done_is_told(source: Path, said: dict[str, Any], line: str) -> None:
    assert line.format("generation_config.json") in planned(source, said).notes


def test_what_changes_no_likeliest_token_is_not_told(source: Path) -> None:
    before = planned(source, None).notes
    usual = {"no_repeat_ngram_size": 0, "num_beams": 1, "repetition_penalty": 1.0, "min_length": 0}
    sampling = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 50}
    said = usual | sampling | {"bad_words_ids": None, "forced_eos_token_id": None}
    assert planned(source, said).notes == before


def test_scores_of_what_may_be_written() -> None:
    logits = np.zeros(4, np.float32)
    left = Unwritten((2,), (0,))
    assert np.isfinite(left.scores(logits, 0)).tolist() == [False, True, False, True]
    assert np.isfinite(left.scores(logits, 1)).tolist() == [True, True, False, True]
    assert Unwritten().scores(logits, 0) is logits and logits.all() == 0


# --- texts ---------------------------------------------------------------------------------------


def made(source: Path, said: dict[str, Any], batch: int = 1) -> loader.Model:
    (source / "generation_config.json").write_text(json.dumps(said))
    out = source.with_name(f"out-{batch}")
    artifact.make(artifact.prepare(artifact.Request(source, out, batch=batch)))
    return loader.load(out)


@pytest.mark.long
def test_texts_are_those_without_these_tokens(source: Path, compiled: Any, data: Path) -> None:
    """One text and texts side by side, by every way in which tokens are picked."""
    usual = list(loader.load(compiled(data / "tiny-llama")).generate(PROMPT, COUNT))
    said = {"begin_suppress_tokens": usual[:1], "suppress_tokens": usual[1:2]}
    alone, beside = made(source, said), made(source, said, batch=2)
    found = list(alone.generate(PROMPT, COUNT))
    assert found[0] != usual[0] and usual[1] not in found
    drawn = list(alone.generate(PROMPT, 40, temperature=50.0, seed=1))
    assert drawn[0] != usual[0] and usual[1] not in drawn and usual[0] in drawn
    for model in (alone, beside):
        first, second = loader.generate_many(model, [loader.Prompt(PROMPT, COUNT)] * 2)
        assert list(first.ids) == list(second.ids) == found


@pytest.mark.peers
@pytest.mark.usefixtures("torch")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "said",
    [
        {},
        {"suppress_tokens": list(range(0, 97, 2))},
        {"begin_suppress_tokens": list(range(30))},
        {"suppress_tokens": [*range(1, 20), -1, 999], "begin_suppress_tokens": [*range(20, 60)]},
    ],
)
def test_texts_are_those_of_transformers(source: Path, said: dict[str, Any]) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = made(source, said)
    original = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    written = original.generate(torch.tensor([PROMPT]), max_new_tokens=COUNT, do_sample=False)
    (ids,) = written[:, len(PROMPT) :].tolist()
    expected = [token for token in ids if token not in model.manifest.eos]
    assert list(model.generate(PROMPT, COUNT)) == expected


@pytest.mark.long
@pytest.mark.parametrize("item", [{"ever": [97]}, {"first": [10**6]}, {"ever": [-1]}, {"ever": 3}])
def test_a_manifest_of_other_tokens_is_refused(source: Path, item: Any) -> None:
    folder = made(source, {}).manifest.folder
    root = json.loads((folder / "manifest.json").read_text()) | {"unwritten": item}
    root[CHECKSUM] = loader.checksum(root)
    (folder / "manifest.json").write_text(json.dumps(root))
    with pytest.raises(loader.BadInput):
        loader.load(folder)
