"""Conversions against the files that llama.cpp's own converter made from the same folders."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader
from safetensors.numpy import load_file

from maxtool.conversion import Request, convert, prepare
from maxtool.dtype import DType
from maxtool.quantization.scheme import Scheme
from maxtool.recipe import find_recipe, resolve_config
from maxtool.recipe.naming import title
from maxtool.weights import open_checkpoint

pytestmark = pytest.mark.reference

Q8_0 = Scheme.named("Q8_0")
NAMES = {"general.name", "general.size_label"}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("stories260K", "stories260K-f32", {}),
    ("stories260K", "stories260K-f32", {"dtype": DType.float32}),
    ("llama", "llama-f32", {}),
    ("llama", "llama-f16", {"dtype": DType.float16}),
    ("llama", "llama-bf16", {"dtype": DType.bfloat16}),
    ("llama", "llama-outtype-q8_0", {"quantize": Q8_0}),
    ("mistral", "mistral-f32", {}),
    ("mistral", "mistral-outtype-q8_0", {"quantize": Q8_0}),
    ("gemma2", "gemma2-f32", {}),
    ("gemma2", "gemma2-outtype-q8_0", {"quantize": Q8_0}),
    ("gemma3", "gemma3-f32", {}),
    ("gemma3", "gemma3-outtype-q8_0", {"quantize": Q8_0}),
]
FAMILIES = [*dict.fromkeys(case[0] for case in CASES), "qwen2", "qwen3", "gpt2", "phi3", "mixtral"]
WHOLE = [case for case in CASES if case[0] in ("llama", "gemma2", "gemma3")]


def run(source: Path, output: Path, **options: object) -> list[str]:
    result = prepare(Request(source, output, **options))
    report = convert(result)
    files = [output] if output.is_file() else list(output.iterdir())
    assert sum(file.stat().st_size for file in files) == result.nbytes
    return result.notes + report.warnings


def contents(path: Path) -> tuple[dict[str, Any], list[Any]]:
    reader = GGUFReader(path)
    keys = {key: (field.types, field.contents()) for key, field in reader.fields.items()}
    counts = {key for key in keys if key.startswith("GGUF.")}
    tensors = [(t.name, t.tensor_type, tuple(t.shape), t.data.tobytes()) for t in reader.tensors]
    return {key: value for key, value in keys.items() if key not in counts}, tensors


@pytest.mark.parametrize(("folder", "name", "options"), CASES)
def test_as_llama_cpp_converts(
    reference: Path, tmp_path: Path, folder: str, name: str, options: dict[str, Any]
) -> None:
    output = tmp_path / "out.gguf"
    notes = run(reference / folder, output, **options)
    keys, tensors = contents(output)
    expected_keys, expected_tensors = contents(reference / folder / f"{name}.gguf")
    assert tensors == expected_tensors
    window = keys.pop("llama.attention.sliding_window", None)
    assert (window is not None) == (folder == "mistral")
    assert any("sliding_window" in note for note in notes) == (folder == "mistral")
    assert list(keys) == list(expected_keys)
    for key in keys.keys() - NAMES:
        assert keys[key] == expected_keys[key], key
    assert keys["general.size_label"] == expected_keys["general.size_label"]


@pytest.mark.parametrize(("folder", "name", "options"), WHOLE)
def test_whole_files_are_the_same(
    reference: Path, tmp_path: Path, folder: str, name: str, options: dict[str, Any]
) -> None:
    """llama.cpp names a model for its folder, which here has to be asked for."""
    run(reference / folder, tmp_path / "out.gguf", name=title(folder), **options)
    expected = reference / folder / f"{name}.gguf"
    assert (tmp_path / "out.gguf").read_bytes() == expected.read_bytes()


@pytest.mark.parametrize("name", FAMILIES)
def test_older_spellings_give_the_same_file(reference: Path, tmp_path: Path, name: str) -> None:
    older = tmp_path / name
    older.mkdir()
    for file in (reference / name).iterdir():
        if file.suffix in {".safetensors", ".model", ".json"} and "older" not in file.name:
            (older / file.name).write_bytes(file.read_bytes())
    (older / "config.json").write_bytes((reference / name / "config.older.json").read_bytes())
    run(reference / name, tmp_path / "new.gguf", name=name)
    run(older, tmp_path / "old.gguf", name=name)
    assert (tmp_path / "new.gguf").read_bytes() == (tmp_path / "old.gguf").read_bytes()


@pytest.mark.parametrize("name", ["stories260K", "llama", "mistral"])
def test_there_and_back(reference: Path, tmp_path: Path, name: str) -> None:
    source, back = reference / name, tmp_path / "back"
    run(source, tmp_path / "there.gguf")
    run(tmp_path / "there.gguf", back)
    assert (back / "model.safetensors").read_bytes() == (source / "model.safetensors").read_bytes()
    assert (back / "tokenizer.model").exists()
    before, after = open_checkpoint(source), open_checkpoint(back)
    assert find_recipe(after).name == find_recipe(before).name
    values = [resolve_config(find_recipe(c), c).values for c in (before, after)]
    assert values[0] == values[1]
    old, new = (json.loads((folder / "config.json").read_text()) for folder in (source, back))
    inert = {"attention_dropout", "initializer_range", "pretraining_tp", "transformers_version"}
    for key in old.keys() - inert - {"pad_token_id", "use_cache"}:
        assert new[key] == old[key], key


def test_quantized_gguf_to_gguf_is_lossless(reference: Path, tmp_path: Path) -> None:
    sources = [*(reference / "llama").glob("*.gguf"), *(reference / "stories260K").glob("*.gguf")]
    assert len(sources) > 15
    for source in sources:
        run(source, tmp_path / source.name)
        assert (tmp_path / source.name).read_bytes() == source.read_bytes(), source.name


@pytest.mark.parametrize("name", ["llama-Q4_K_M", "llama-outtype-q8_0", "llama-f16", "llama-bf16"])
def test_gguf_to_huggingface_as_gguf_decodes(reference: Path, tmp_path: Path, name: str) -> None:
    from gguf.quants import dequantize

    source = reference / "llama" / f"{name}.gguf"
    run(source, tmp_path / "out")
    actual = load_file(tmp_path / "out" / "model.safetensors")
    tensors = {t.name: t for t in GGUFReader(source).tensors}
    for theirs, ours in {
        "token_embd.weight": "model.embed_tokens.weight",
        "blk.1.ffn_down.weight": "model.layers.1.mlp.down_proj.weight",
        "blk.0.attn_v.weight": "model.layers.0.self_attn.v_proj.weight",
        "output_norm.weight": "model.norm.weight",
    }.items():
        tensor = tensors[theirs]
        expected = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        np.testing.assert_array_equal(actual[ours].astype(np.float32), expected)


@pytest.mark.parametrize("name", ["gemma2", "gemma3"])
def test_gemma_comes_back_to_rounding(reference: Path, tmp_path: Path, name: str) -> None:
    """GGUF keeps 1 + w of each norm."""
    run(reference / name / f"{name}-f32.gguf", tmp_path / "out")
    expected = load_file(reference / name / "model.safetensors")
    actual = load_file(tmp_path / "out" / "model.safetensors")
    assert actual.keys() == expected.keys()
    for tensor, array in expected.items():
        if "norm" in tensor:
            np.testing.assert_allclose(actual[tensor], array, atol=1.2e-7, err_msg=tensor)
        else:
            np.testing.assert_array_equal(actual[tensor], array)


def test_requantizing_is_told(reference: Path, tmp_path: Path) -> None:
    source = reference / "llama" / "llama-Q4_0.gguf"
    notes = run(source, tmp_path / "out.gguf", quantize=replace(Q8_0, requantize=True))
    (note,) = [note for note in notes if "quantized before" in note]
    assert re.search(r" loss: \S+ and \d+ more$", note)
    assert contents(tmp_path / "out.gguf")[0]["general.file_type"][1] == 7


def test_rows_that_are_no_whole_blocks_fall_back(reference: Path, tmp_path: Path) -> None:
    notes = run(reference / "stories260K", tmp_path / "out.gguf", quantize=Q8_0)
    (fallen,) = [note for note in notes if "written as float16" in note]
    assert fallen.startswith("5 tensors are")
    types = {name: kind.name for name, kind, _, _ in contents(tmp_path / "out.gguf")[1]}
    assert types["blk.0.ffn_down.weight"] == "F16"
    assert types["blk.0.ffn_up.weight"] == "Q8_0"
    assert types["blk.0.ffn_norm.weight"] == "F32"


LLAMA = ("Q2_K", "Q3_K_M", "Q4_0", "Q4_1", "Q4_K_M", "Q5_0", "Q5_1", "Q5_K_M", "Q6_K", "Q8_0")
QUANTIZED = [("llama", mix) for mix in LLAMA]
QUANTIZED += [("stories260K", mix) for mix in ("Q4_0", "Q4_K_M", "Q6_K", "Q8_0")]


@pytest.mark.parametrize(("folder", "mix"), QUANTIZED)
def test_as_llama_quantize_does(reference: Path, tmp_path: Path, folder: str, mix: str) -> None:
    """The files of llama-quantize, of which the rows of stories260K are not whole blocks."""
    output = tmp_path / "out.gguf"
    run(reference / folder, output, quantize=Scheme.named(mix))
    keys, tensors = contents(output)
    expected_keys, expected_tensors = contents(reference / folder / f"{folder}-{mix}.gguf")
    assert sorted(tensors) == sorted(expected_tensors)
    for key in ("general.file_type", "general.quantization_version"):
        assert keys[key] == expected_keys[key]
