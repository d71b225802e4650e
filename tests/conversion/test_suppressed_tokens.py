"""Tokens that a model never writes, through GGUF and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gguf import GGUFReader
from safetensors.numpy import save_file

from maxtool.conversion import Request, convert, prepare
from maxtool.errors import ConfigurationError
from tests.data.seeded import tensors
from tests.variants.rows import rows

KEY = "tokenizer.ggml.suppress_tokens"


def folder(tmp_path: Path, listed: object, *, whole: bool = True) -> Path:
    """A model, or the part of it that writes texts, in a folder that lists such tokens."""
    row = next(row for row in rows("gemma4_unified_text") if "gguf" in row.more)
    config, named = dict(row.config), tensors(row.shapes, row.norm)
    if whole:
        named = {name.replace("model.", "model.language_model.", 1): named[name] for name in named}
        tied = {"tie_word_embeddings": config["tie_word_embeddings"]}
        config = {"model_type": "gemma4_unified", "text_config": config, **tied}
    made = tmp_path / "folder"
    made.mkdir()
    save_file(named, made / "model.safetensors", {"format": "pt"})
    (made / "config.json").write_text(json.dumps(config))
    (made / "generation_config.json").write_text(json.dumps({"suppress_tokens": listed}))
    return made


def test_there_and_back(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    convert(prepare(Request(folder(tmp_path, [2, 1]), file)))
    found = GGUFReader(file).fields
    assert found[KEY].contents() == [2, 1]
    # As llama.cpp's converter has it: behind all that describes the network.
    names = list(found)
    assert names[names.index(KEY) + 1 :] == ["general.quantization_version"]
    convert(prepare(Request(file, tmp_path / "back")))
    said = json.loads((tmp_path / "back" / "generation_config.json").read_text())
    assert said["suppress_tokens"] == [2, 1]


@pytest.mark.parametrize("listed", [None, []])
def test_none(listed: object, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    convert(prepare(Request(folder(tmp_path, listed), file)))
    assert KEY not in GGUFReader(file).fields


def test_kinds_of_which_llama_cpp_has_no_such_key(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    convert(prepare(Request(folder(tmp_path, [1], whole=False), file)))
    assert KEY not in GGUFReader(file).fields


@pytest.mark.parametrize("listed", ["all", [True], [1.5], [-1], [1 << 40], {"a": 1}])
def test_what_is_no_list_of_tokens_is_refused(listed: object, tmp_path: Path) -> None:
    source = folder(tmp_path, listed)
    with pytest.raises(ConfigurationError, match="is not a list of tokens"):
        convert(prepare(Request(source, tmp_path / "model.gguf")))
