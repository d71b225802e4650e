"""Encoders from one dialect into the other and back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from maxtool import artifact
from maxtool.recipe import find_recipe
from maxtool.runtime import loader
from maxtool.weights import open_checkpoint
from tests.conversion.asked import run
from tests.effort import thinned
from tests.variants import gguf_keys
from tests.variants.rows import Files, rows

DATA = Path(__file__).resolve().parents[1] / "data"
TINY = ("tiny-bert", "tiny-roberta", "tiny-distilbert", "tiny-nomic-bert")
TEXTS = ["Once upon a time", "He sat down, and ate the soup.", "日本"]


def gelu(source: Path, folder: Path) -> Path:
    """A copy of DistilBERT with the one activation that llama.cpp has."""
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"activation": "gelu"}))
    return folder


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(TINY, "tiny-roberta"))
def test_there_and_back(tmp_path: Path, name: str) -> None:
    source = DATA / name
    if name == "tiny-distilbert":
        source = gelu(source, tmp_path / "source")
    run("convert", source, "-o", tmp_path / "model.gguf")
    run("convert", tmp_path / "model.gguf", "-o", tmp_path / "back")
    run("convert", source, "-o", tmp_path / "plain")
    back, plain = (load_file(tmp_path / n / "model.safetensors") for n in ("back", "plain"))
    assert set(plain) - set(back) <= {"pooler.dense.weight", "pooler.dense.bias"}
    for tensor, array in back.items():
        first = 2 if "position" in tensor and name == "tiny-roberta" else 0
        np.testing.assert_array_equal(array[first:], plain[tensor][first:], err_msg=tensor)
        assert not array[:first].any()
    result = artifact.prepare(artifact.Request(tmp_path / "back", tmp_path / "out", check=True))
    artifact.make(result)


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(["tiny-bert", "tiny-roberta"], "tiny-roberta"))
def test_texts_have_the_same_vectors_from_both_dialects(tmp_path: Path, name: str) -> None:
    run("convert", DATA / name, "-o", tmp_path / "model.gguf")
    flags = ["--normalize", "--context", 16, "--check", "-q"]
    run("compile", DATA / name, "-o", tmp_path / "hf", *flags)
    run("compile", tmp_path / "model.gguf", "-o", tmp_path / "gguf", *flags)
    hf, gguf = (loader.load(tmp_path / n).embed(TEXTS) for n in ("hf", "gguf"))
    np.testing.assert_allclose(gguf, hf, rtol=1e-5, atol=1e-6)


def test_what_gguf_says_of_pooling(tmp_path: Path) -> None:
    notes = run("convert", DATA / "tiny-roberta", "-o", tmp_path / "model.gguf")
    assert "max_length = 16 is not written" in notes
    keys = open_checkpoint(tmp_path / "model.gguf").metadata
    assert keys["bert.pooling_type"] == 2
    assert keys["bert.context_length"] == 40
    assert keys["bert.attention.causal"] is False
    assert keys["tokenizer.ggml.token_type_count"] == 1
    run("convert", tmp_path / "model.gguf", "-o", tmp_path / "back")
    modules = json.loads((tmp_path / "back" / "modules.json").read_text())
    assert [entry["path"] for entry in modules] == ["", "1_Pooling", "2_Normalize"]
    pooling = json.loads((tmp_path / "back" / "1_Pooling" / "config.json").read_text())
    assert pooling["word_embedding_dimension"] == 20
    assert [key for key, value in pooling.items() if value is True] == ["pooling_mode_cls_token"]


def test_what_llama_cpp_cannot_compute(tmp_path: Path) -> None:
    output = tmp_path / "model.gguf"
    assert "hidden_act = 'relu'" in run("convert", DATA / "tiny-distilbert", "-o", output, code=4)
    folder = tmp_path / "pooled"
    shutil.copytree(DATA / "tiny-roberta", folder)
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    assert "pooling = 'max' has no spelling" in run("convert", folder, "-o", output, code=4)


def test_files_of_sentence_transformers_are_carried(tmp_path: Path) -> None:
    run("convert", DATA / "tiny-roberta", "-o", tmp_path / "out", "--dtype", "float16")
    for name in ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (DATA / "tiny-roberta" / name).read_bytes()


def test_a_gguf_file_of_modernbert_that_says_no_period(tmp_path: Path) -> None:
    """Take the first of every three layers to see everything, as llama.cpp does."""
    Files(tmp_path).checkpoint(next(rows("modernbert")))
    run("convert", tmp_path / "0" / "modernbert", "-o", tmp_path / "model.gguf")
    checkpoint = open_checkpoint(tmp_path / "model.gguf")
    keys = {**checkpoint.metadata, "modern-bert.block_count": np.uint32(4)}
    del keys["modern-bert.attention.sliding_window_pattern"]
    found = gguf_keys.read(find_recipe(checkpoint), checkpoint, keys)
    assert found is not None
    assert found["sliding_layers"] == (False, True, True, False)
