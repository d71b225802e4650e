"""Decoders that make vectors of texts, as files of sentence-transformers or of llama.cpp say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from maxtool import artifact
from maxtool.cli.app import app
from maxtool.recipe.sentence_transformers import MODES
from maxtool.runtime.loader import DoesNotFit
from maxtool.weights import open_checkpoint
from tests.artifact.compiling import compiled, convert
from tests.artifact.measure import BOUND, Array, error, recorded
from tests.effort import thinned

DATA = Path(__file__).resolve().parents[1] / "data"
KIND = "sentence_transformers.models."
PROMPTS = {"query": "Find what answers: ", "document": ""}
POOLINGS = ("last", "mean", "cls", "max")


def modules(folder: Path, pooling: str, *, normalize: bool = True, **settings: Any) -> None:
    """Write the files of sentence-transformers."""
    kinds = {"Transformer": "", "Pooling": "1_Pooling"}
    kinds |= {"Normalize": "2_Normalize"} if normalize else {}
    listed = [{"type": KIND + kind, "path": path} for kind, path in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    flags = {flag: name == pooling for name, flag in MODES.items()}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(flags))
    if settings:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))


def embedding(name: str, folder: Path, pooling: str = "last", **options: Any) -> Path:
    """A tiny model of texts as one of embeddings is published: without a head and a prefix."""
    shutil.copytree(DATA / name, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors.pop("lm_head.weight", None)
    renamed = {tensor.removeprefix("model."): array for tensor, array in tensors.items()}
    save_file(renamed, folder / "model.safetensors")
    modules(folder, pooling, **options)
    return folder


def padded(ids: Array) -> Mapping[str, Array]:
    """Two texts: the whole of ``ids [1, seq]``, and its first 5 tokens with padding behind."""
    both = np.concatenate([ids, ids])
    both[1, 5:] = 0
    mask = np.ones_like(both)
    mask[1, 5:] = 0
    return {"input_ids": both, "attention_mask": mask}


def vectors(hidden: Array, pooling: str) -> Array:
    """Vectors that NumPy makes of hidden states, of all tokens and of the first 5, of length 1."""
    parts = hidden[0], hidden[0, :5]
    pools = {"last": lambda x: x[-1], "cls": lambda x: x[0]}
    pools |= {"mean": lambda x: x.mean(0), "max": lambda x: x.max(0)}
    found = np.stack([pools[pooling](part) for part in parts])
    result: Array = found / np.linalg.norm(found, axis=1, keepdims=True)
    return result


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(["tiny-qwen3", "tiny-mistral"], "tiny-qwen3"))
def test_hidden_states_have_the_recorded_logits(name: str, tmp_path: Path) -> None:
    """Multiply them with the head that the model of texts has, of which logits were recorded."""
    model = compiled(embedding(name, tmp_path / "it"), tmp_path / "out")
    assert {*model.manifest.entries} == {"forward", "embed"}
    expected = recorded(DATA / name)
    ids = expected["input_ids"]
    hidden = model(input_ids=ids)["last_hidden_state"]
    head = load_file(DATA / name / "model.safetensors")["lm_head.weight"].astype(np.float32)
    assert error(hidden @ head.T, expected["logits"]) <= BOUND
    actual = model.run("embed", padded(ids))["embeddings"]
    assert error(actual, vectors(hidden, "last")) <= BOUND


@pytest.mark.long
def test_padding_before_a_text_is_refused(tmp_path: Path) -> None:
    model = compiled(embedding("tiny-qwen3", tmp_path / "it"), tmp_path / "out")
    ids = recorded(DATA / "tiny-qwen3")["input_ids"]
    for mask in ([0, 0, 1], [1, 0, 1]):
        arrays = {"input_ids": ids[:, :3], "attention_mask": np.array([mask])}
        with pytest.raises(DoesNotFit, match="padding before or within a text"):
            model.run("embed", arrays)


@pytest.mark.parametrize("pooling", thinned(POOLINGS, "mean"))
def test_poolings(pooling: str, tmp_path: Path) -> None:
    model = compiled(embedding("tiny-qwen3", tmp_path / "it", pooling), tmp_path / "out")
    ids = recorded(DATA / "tiny-qwen3")["input_ids"]
    hidden = model(input_ids=ids)["last_hidden_state"]
    actual = model.run("embed", padded(ids))["embeddings"]
    assert error(actual, vectors(hidden, pooling)) <= BOUND


@pytest.mark.long
def test_through_gguf(tmp_path: Path) -> None:
    source = embedding("tiny-qwen3", tmp_path / "it")
    told = convert(source, tmp_path / "model.gguf")
    assert "not written" not in told
    assert open_checkpoint(tmp_path / "model.gguf").metadata["qwen3.pooling_type"] == 3
    ids = padded(recorded(DATA / "tiny-qwen3")["input_ids"])
    convert(tmp_path / "model.gguf", tmp_path / "back")
    first, *others = (
        compiled(path, tmp_path / f"{number}").run("embed", ids)["embeddings"]
        for number, path in enumerate([source, tmp_path / "model.gguf", tmp_path / "back"])
    )
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_a_default_prompt_is_lost_with_a_note(tmp_path: Path) -> None:
    options = {"prompts": PROMPTS, "default_prompt_name": "query"}
    source = embedding("tiny-qwen3", tmp_path / "it", **options)
    told = convert(source, tmp_path / "model.gguf")
    assert "default_prompt = 'query' is not written" in told


def test_a_head_that_is_there_is_not_needed(tmp_path: Path) -> None:
    shutil.copytree(DATA / "tiny-llama", tmp_path / "it")
    modules(tmp_path / "it", "last")
    build = artifact.prepare(artifact.Request(tmp_path / "it", tmp_path / "out"))
    assert "lm_head.weight is not needed to run and is dropped" in build.notes


@pytest.mark.long
@pytest.mark.parametrize("usual", [None, "query"])
def test_prompts(usual: str | None, tmp_path: Path) -> None:
    options = {"prompts": PROMPTS, "default_prompt_name": usual}
    model = compiled(embedding("tiny-llama", tmp_path / "it", **options), tmp_path / "out")
    plain = model.embed("hot soup", prompt="none")
    asked = model.embed(PROMPTS["query"] + "hot soup", prompt="none")
    assert not np.allclose(plain, asked)
    np.testing.assert_array_equal(model.embed("hot soup", prompt="query"), asked)
    np.testing.assert_array_equal(model.embed("hot soup", prompt="document"), plain)
    np.testing.assert_array_equal(model.embed("hot soup"), plain if usual is None else asked)
    ids = model.encode("hot soup")
    np.testing.assert_array_equal(model.embed([ids], prompt="query"), plain)
    with pytest.raises(DoesNotFit, match="no prompt 'other'"):
        model.embed("hot soup", prompt="other")


@pytest.mark.long
def test_prompts_at_the_terminal(tmp_path: Path) -> None:
    source = embedding("tiny-llama", tmp_path / "it", prompts=PROMPTS)
    model = compiled(source, tmp_path / "out")
    command = ["embed", str(tmp_path / "out"), "--text", "hot soup"]
    result = CliRunner().invoke(app, [*command, "--prompt", "query"])
    assert result.exit_code == 0, result.stderr
    actual = np.array(json.loads(result.stdout), np.float32)
    np.testing.assert_array_equal(actual, model.embed("hot soup", prompt="query")[0])
    result = CliRunner().invoke(app, [*command, "--prompt", "other"])
    assert result.exit_code != 0
    assert "its prompts: query, document" in result.stderr
    command = ["embed", str(tmp_path / "out"), "--ids", "1"]
    result = CliRunner().invoke(app, [*command, "--prompt", "query"])
    assert "--prompt goes with --text or --file" in result.stderr


def test_a_usual_prompt_that_is_not_there(tmp_path: Path) -> None:
    options = {"prompts": PROMPTS, "default_prompt_name": "passage"}
    embedding("tiny-llama", tmp_path / "it", **options)
    command = ["compile", str(tmp_path / "it"), "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code != 0
    assert "the prompt 'passage' that is put before each text is none of the prompts" in (
        result.stderr
    )


@pytest.mark.long
@pytest.mark.parametrize("name", ["tiny-bert"])
def test_prompts_of_encoders(name: str, tmp_path: Path) -> None:
    shutil.copytree(DATA / name, tmp_path / "it")
    modules(tmp_path / "it", "mean", prompts=PROMPTS)
    model = compiled(tmp_path / "it", tmp_path / "out")
    asked = model.embed(PROMPTS["query"] + "hot soup")
    np.testing.assert_array_equal(model.embed("hot soup", prompt="query"), asked)


@pytest.mark.peers
@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny-qwen3", "tiny-mistral", "tiny-gemma3", "tiny-gpt2"])
def test_check_with_transformers(name: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    shutil.copytree(DATA / name, tmp_path / "it")
    modules(tmp_path / "it", "last")
    command = ["compile", str(tmp_path / "it"), "-o", str(tmp_path / "out"), "--check"]
    result = CliRunner().invoke(app, [*command, "transformers", "--json"])
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["check"]["relative_error"] < 1e-5


@pytest.mark.parametrize("option", [["--batch", "2"], ["--kv-dtype", "float16"]])
def test_options_of_models_that_write_texts(option: list[str], tmp_path: Path) -> None:
    command = ["compile", str(DATA / "tiny-llama"), "-o", str(tmp_path / "out"), *option]
    result = CliRunner().invoke(app, [*command, "--pooling", "last"])
    assert result.exit_code == 2
    assert f"{option[0]} is for models that write texts, not llama" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_any_decoder_may_make_vectors(devices: int, tmp_path: Path) -> None:
    """Split heads over devices, too, of a model of texts."""
    options = {"pooling": "mean", "normalize": True, "devices": devices}
    model = compiled(DATA / "tiny-llama", tmp_path / "out", **options)
    ids = recorded(DATA / "tiny-llama")["input_ids"]
    hidden = model(input_ids=ids)["last_hidden_state"]
    actual = model.run("embed", padded(ids))["embeddings"]
    assert error(actual, vectors(hidden, "mean")) <= BOUND
