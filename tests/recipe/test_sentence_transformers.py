"""Files that sentence-transformers keeps next to a model."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxtool.conversion import Request, convert, prepare
from maxtool.errors import ConfigurationError, InputError, MalformedFile
from maxtool.recipe import load_recipe, resolve_config
from maxtool.recipe.dense_modules import USUAL
from maxtool.recipe.sentence_transformers import files, read
from maxtool.weights import open_checkpoint
from tests.recipe.conftest import DATA

TYPE = "sentence_transformers.models."
ACTIVATION = "torch.nn.modules.activation."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(DATA / "tiny-roberta", tmp_path / "model")
    return tmp_path / "model"


def values(folder: Path) -> dict[str, Any]:
    return resolve_config(load_recipe("roberta"), open_checkpoint(folder)).values


def test_pooling_normalisation_and_length(folder: Path) -> None:
    found = values(folder)
    assert (found["pooling"], found["normalize"], found["max_length"]) == ("cls", True, 16)
    prompts = folder / "config_sentence_transformers.json"
    prompts.write_text(json.dumps({"default_prompt_name": "query"}))
    assert values(folder)["default_prompt"] == "query"
    (folder / "modules.json").unlink()
    found = values(folder)
    assert found["default_prompt"] is None
    assert (found["pooling"], found["normalize"], found["max_length"]) == (None, False, None)


TEXT, COMMON, FORMED = ({name: {"max_length": 5}} for name in ("text", "common", "chat_template"))


@pytest.mark.parametrize(
    ("calls", "length"),
    [
        (None, 16),
        ({}, 16),
        ({"text": {"max_length": None, "padding": True}}, 16),
        (TEXT, 5),
        (COMMON, 5),
        ({**COMMON, "text": {"max_length": 9}}, 9),
        (FORMED, 16),
        ({"text": {"max_length": 5, "truncation": False}}, None),
        ({"text": {"truncation": "do_not_truncate"}}, None),
        ({"text": {"truncation": True}, "common": {"truncation": False}}, 16),
    ],
)
def test_lengths_of_calls(folder: Path, calls: dict[str, Any] | None, length: int | None) -> None:
    """Cut texts where sentence-transformers' tokenizer is asked to, before the model's length."""
    settings = {"max_seq_length": 16, "processing_kwargs": calls}
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    assert values(folder)["max_length"] == length


def test_a_length_that_is_no_number(folder: Path) -> None:
    settings = {"processing_kwargs": {"text": {"max_length": "long"}}}
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigurationError, match=r"max_seq_length = 'long'"):
        values(folder)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"pooling_mode_lasttoken": True}, "'last'"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, r"'mean\+max'"),
        ({}, "'none'"),
    ],
)
def test_pooling_that_is_not_supported(folder: Path, flags: dict[str, Any], said: str) -> None:
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(flags))
    with pytest.raises(ConfigurationError, match=rf"pooling = {said} is not supported"):
        values(folder)


@pytest.mark.parametrize(
    ("place", "kind", "said"),
    [
        (1, "Dense", "'Transformer Dense Pooling Normalize'"),
        (3, "Dense", "'Transformer Pooling Normalize Dense'"),
        (2, "LayerNorm", "'Transformer Pooling LayerNorm Normalize'"),
    ],
)
def test_a_module_that_is_not_supported(folder: Path, place: int, kind: str, said: str) -> None:
    insert(folder, place, f"2_{kind}", kind, LAYER)
    with pytest.raises(ConfigurationError, match=said):
        values(folder)


LAYER = {"in_features": 20, "out_features": 7, "bias": True}


def insert(folder: Path, place: int, path: str, kind: str, config: dict[str, Any]) -> None:
    """Put a module into the list, and its configuration into a folder."""
    modules = json.loads((folder / "modules.json").read_text())
    modules.insert(place, {"idx": 9, "name": "9", "path": path, "type": f"{TYPE}{kind}"})
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / path).mkdir()
    (folder / path / "config.json").write_text(json.dumps(config))


def test_layers(folder: Path) -> None:
    """Take the activation that torch's layer has where a configuration says none."""
    insert(folder, 2, "2_Dense", "Dense", LAYER)
    gelu = {"out_features": 5, "bias": False, "activation_function": f"{ACTIVATION}GELU"}
    insert(folder, 3, "3_Dense_1024", "Dense", gelu)
    found = values(folder)
    named = ("dense_features", "dense_biases", "dense_activations")
    assert [found[name] for name in named] == [(7, 5), (True, False), ("tanh", "gelu")]


def test_a_layer_without_a_width(folder: Path) -> None:
    insert(folder, 2, "2_Dense", "Dense", {"in_features": 20})
    with pytest.raises(MalformedFile, match="a Dense module without out_features"):
        values(folder)


@pytest.mark.parametrize("mode", ["mean", "max"])
def test_the_newer_spelling_of_pooling(folder: Path, mode: str) -> None:
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": mode}))
    assert values(folder)["pooling"] == mode


@pytest.mark.parametrize(
    ("file", "content", "supported"),
    [
        ("sentence_bert_config.json", {"do_lower_case": True}, "(False is)"),
    ],
)
def test_what_is_done_to_texts_before(
    folder: Path, file: str, content: dict[str, Any], supported: str
) -> None:
    (folder / file).write_text(json.dumps(content))
    said = rf"{next(iter(content))} = .* is not supported {re.escape(supported)}"
    with pytest.raises(ConfigurationError, match=said):
        values(folder)


@pytest.mark.parametrize(
    "modules",
    [
        "{}",
        "[3]",
        "[",
        '[{"type": "a.Pooling"}]',
        '[{"type": "a.Pooling", "path": "../.."}]',
        '[{"type": "a.Pooling", "path": ".."}]',
        '[{"type": "a.Pooling", "path": "/etc"}]',
        '[{"type": "a.Pooling", "path": "1_Pooling/../../x"}]',
        '[], "modules": [',
    ],
)
def test_hostile_modules(folder: Path, modules: str) -> None:
    (folder / "modules.json").write_text(modules)
    with pytest.raises(MalformedFile):
        read(folder)


@given(st.binary(max_size=60))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "modules.json").write_bytes(data)
    with suppress(InputError):
        read(folder)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("layers", [0, 2])
def test_written_files_say_the_same(
    tmp_path: Path, pooling: str, normalize: bool, layers: int
) -> None:
    keys: dict[str, Any] = {"pooling": pooling, "normalize": normalize, "max_seq_length": 9}
    if layers:
        keys |= {"dense_features": [8, 20], "dense_biases": [True, False]}
        keys["dense_activations"] = ["tanh", "identity"]
    for name, data in files(keys, 20).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    found = {key.removeprefix("sentence_transformers."): v for key, v in read(tmp_path).items()}
    assert found.pop("modules").startswith("Transformer Pooling")
    assert found == keys | (USUAL if layers else {})


def test_a_number_in_gguf_that_means_nothing_here() -> None:
    """Refuse the pooling of rerankers, 4, by its number, where llama.cpp has no head for it."""
    checkpoint = open_checkpoint(DATA / "tiny-qwen2" / "tiny-qwen2-f32.gguf")
    keys = {**checkpoint.metadata, "qwen2.pooling_type": np.uint32(4)}
    with pytest.raises(ConfigurationError) as refused:
        resolve_config(load_recipe("qwen2"), dataclasses.replace(checkpoint, metadata=keys))
    assert "qwen2.pooling_type = 4 is not supported (1, 2 and 3 are)" in str(refused.value)


def test_scores_without_a_head_in_gguf(tmp_path: Path) -> None:
    """Tell users of files that a converter left the head out of, as older ones did."""
    output = tmp_path / "it.gguf"
    convert(prepare(Request(DATA / "tiny-qwen3", output)))
    checkpoint = open_checkpoint(output)
    keys = {**checkpoint.metadata, "qwen3.pooling_type": np.uint32(4)}
    with pytest.raises(
        ConfigurationError, match=r"qwen3\.pooling_type: 4 .* no cls\.output\.weight"
    ):
        resolve_config(load_recipe("qwen3"), dataclasses.replace(checkpoint, metadata=keys))


def test_another_recipe_passes_them_over(tmp_path: Path) -> None:
    shutil.copytree(DATA / "tiny-llama", tmp_path / "model")
    for name in ("modules.json", "sentence_bert_config.json", "1_Pooling"):
        source = DATA / "tiny-roberta" / name
        copy = shutil.copytree if source.is_dir() else shutil.copyfile
        copy(source, tmp_path / "model" / name)
    resolve_config(load_recipe("llama"), open_checkpoint(tmp_path / "model"))
