"""Every family of language models, converted both ways, beside what llama.cpp's converter makes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader
from safetensors.numpy import load_file

from maxtool.architectures import DecoderConfig, decoder_checks
from maxtool.architectures.config import typed
from maxtool.conversion import Request, convert, prepare
from maxtool.errors import ConfigurationError
from maxtool.recipe import (
    find_recipe,
    load_recipe,
    resolve_config,
    written_keys,
    written_notes,
)
from maxtool.recipe.expressions import same
from maxtool.recipe.naming import title
from maxtool.weights import open_checkpoint

DATA = Path(__file__).resolve().parents[1] / "data"
CONVERTED = sorted(file.parent.name for file in DATA.glob("tiny-*/*-f32.gguf"))

# Keys that llama.cpp's converter leaves out though the model is another one without them; we write
# them and say so.
ADDED = {
    "tiny-gemma2": {"gemma2.attention.scale"},
    "tiny-gemma3": {"gemma3.attention.scale", "gemma3.attention.sliding_window_pattern"},
    "tiny-qwen2": {"qwen2.attention.sliding_window", "qwen2.attention.sliding_window_pattern"},
    "tiny-starcoder2": {"starcoder2.attention.sliding_window"},
}
# It writes 2048 for every Falcon.
CORRECTED = {
    "tiny-falcon": {"falcon.context_length"},
    "tiny-falcon-new": {"falcon.context_length"},
}
ROUNDED = {"tiny-gemma2", "tiny-gemma3"}


def run(source: Path, output: Path, name: str | None = None, **options: Any) -> list[str]:
    result = prepare(Request(source, output, name=name, **options))
    return result.notes + convert(result).warnings


def contents(path: Path) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    reader = GGUFReader(path)
    keys = {k: (f.types, f.contents()) for k, f in reader.fields.items() if k[:5] != "GGUF."}
    tensors = [(t.name, (t.tensor_type, tuple(t.shape), t.data.tobytes())) for t in reader.tensors]
    return keys, tensors


def test_the_families_are_here() -> None:
    assert len(CONVERTED) >= 17
    names = {find_recipe(open_checkpoint(DATA / name)).name for name in CONVERTED}
    assert len(names) >= 14


@pytest.mark.parametrize("name", CONVERTED)
def test_as_llama_cpp_converts(tmp_path: Path, name: str) -> None:
    expected_file = DATA / name / f"{name}-f32.gguf"
    notes = run(DATA / name, tmp_path / "out.gguf", name=title(name))  # as llama.cpp names it
    keys, tensors = contents(tmp_path / "out.gguf")
    expected_keys, expected = contents(expected_file)
    corrected = CORRECTED.get(name, set())
    assert [tensor for tensor, _ in tensors] == [tensor for tensor, _ in expected]
    assert {
        t for (t, left), (_, right) in zip(tensors, expected, strict=True) if left != right
    } == (corrected & dict(tensors).keys())
    assert keys.keys() - expected_keys.keys() == ADDED.get(name, set())
    assert [key for key in keys if key in expected_keys] == list(expected_keys)
    assert {key for key in expected_keys if keys[key] != expected_keys[key]} == (
        corrected & expected_keys.keys()
    )
    told = {key for key in keys for note in notes if f"is written as {key};" in note}
    assert told == ADDED.get(name, set())
    if not corrected and name not in ADDED:
        assert (tmp_path / "out.gguf").read_bytes() == expected_file.read_bytes()


@pytest.mark.parametrize("name", CONVERTED)
def test_from_llama_cpps_file(tmp_path: Path, name: str) -> None:
    """Match the source's tensors, and its configuration but for the keys llama.cpp leaves out."""
    run(DATA / name / f"{name}-f32.gguf", tmp_path / "back")
    expected = load_file(DATA / name / "model.safetensors")
    actual = load_file(tmp_path / "back" / "model.safetensors")
    assert actual.keys() == expected.keys()
    for tensor, array in expected.items():
        if name in ROUNDED:
            np.testing.assert_allclose(actual[tensor], array, atol=1.2e-7, err_msg=tensor)
        else:
            assert actual[tensor].tobytes() == array.tobytes(), tensor


@pytest.mark.parametrize("name", CONVERTED)
def test_there_and_back(tmp_path: Path, name: str) -> None:
    there = run(DATA / name, tmp_path / "there.gguf")
    run(tmp_path / "there.gguf", tmp_path / "back")
    before, after = open_checkpoint(DATA / name), open_checkpoint(tmp_path / "back")
    assert find_recipe(before).name == find_recipe(after).name
    values = [resolve_config(find_recipe(one), one).values for one in (before, after)]
    assert {key for key in values[0] if not same(values[0][key], values[1][key])} == set()
    files = [folder / "model.safetensors" for folder in (DATA / name, tmp_path / "back")]
    assert (files[0].read_bytes() == files[1].read_bytes()) == (name not in ROUNDED)
    assert any("are rounded" in note for note in there) == (name in ROUNDED)


@pytest.mark.parametrize("name", CONVERTED)
def test_gguf_to_gguf_is_lossless(tmp_path: Path, name: str) -> None:
    source = DATA / name / f"{name}-f32.gguf"
    run(source, tmp_path / "again.gguf")
    assert (tmp_path / "again.gguf").read_bytes() == source.read_bytes()


@pytest.mark.parametrize(
    "name", sorted(file.parent.name for file in DATA.glob("tiny-*/config.newer.json"))
)
def test_both_spellings_give_the_same_model(tmp_path: Path, name: str) -> None:
    newer = tmp_path / name
    shutil.copytree(DATA / name, newer)
    shutil.copy(DATA / name / "config.newer.json", newer / "config.json")
    checkpoints = [open_checkpoint(folder) for folder in (DATA / name, newer)]
    left, right = (resolve_config(find_recipe(each), each) for each in checkpoints)
    assert all("is unknown, and off" in note for note in left.notes + right.notes)
    # Phi 3 without LongRoPE does not use it, and transformers writes its own default.
    unused = {"rope_original_context"} if left.values.get("rope_scaling") == "none" else set()
    assert {key for key in left.values if left.values[key] != right.values[key]} <= unused


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("tiny-falcon-rw", "block = 'pre' has no spelling in gguf"),
        ("tiny-falcon-rw", "qkv_bias = True has no spelling in gguf"),
        ("tiny-qwen3-moe", "expert_layers = (True, False, True) has no spelling in gguf"),
    ],
)
def test_what_gguf_has_no_form_for(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        prepare(Request(DATA / name, tmp_path / "out.gguf"))
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("tiny-gemma2", {"attention_softcap": None}),
        ("tiny-gemma2", {"sliding_window": None}),
        ("tiny-qwen3-moe-all", {"norm_topk": False}),
        ("tiny-llama", {"hidden_act": "gelu"}),
        ("tiny-smollm3", {"hidden_act": "gelu_tanh"}),
        ("tiny-smollm3", {"rope_layers": (True, False, True, True)}),
    ],
)
def test_what_llama_cpp_assumes_is_not_contradicted(name: str, changes: dict[str, Any]) -> None:
    checkpoint = open_checkpoint(DATA / name)
    recipe = find_recipe(checkpoint)
    values = resolve_config(recipe, checkpoint).values
    assert written_keys(recipe, "gguf", values)
    with pytest.raises(ConfigurationError, match=f"{next(iter(changes))} = .* has no spelling"):
        written_keys(recipe, "gguf", values | changes)


@pytest.mark.parametrize(
    "said",
    [{"sliding_window_pattern": 1}, {"layer_types": ["full_attention"] * 4}],
    ids=["pattern", "list"],
)
def test_gemma3_without_windows_has_no_key_of_them(tmp_path: Path, said: dict[str, Any]) -> None:
    """Write no key of windows, as llama.cpp's converter: with the key it would see windows.

    All layers then have the base and the scaling of those that see everything.
    """
    source = tmp_path / "source"
    shutil.copytree(DATA / "tiny-gemma3", source)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | said))
    notes = run(source, tmp_path / "out.gguf")
    assert "sliding_window = 7 is not written: no layer has one" in notes
    file = open_checkpoint(tmp_path / "out.gguf")
    assert not [key for key in file.metadata if "sliding" in key]
    run(tmp_path / "out.gguf", tmp_path / "back")
    written = json.loads((tmp_path / "back" / "config.json").read_text())
    assert written["layer_types"] == ["full_attention"] * 4
    assert written["sliding_window"] == 4096, "transformers needs a number, though it is not used"
    for one in (open_checkpoint(source), file, open_checkpoint(tmp_path / "back")):
        values = resolve_config(find_recipe(one), one).values
        config = typed(DecoderConfig, values, decoder_checks.problems)
        assert [config.window(layer) for layer in range(4)] == [None] * 4
        assert not any(map(config.is_local, range(4)))
        assert config.rope_theta == 1e6


def test_yarn_keys_that_llama_cpp_does_not_read_are_told() -> None:
    checkpoint = open_checkpoint(DATA / "tiny-yarn")
    recipe = find_recipe(checkpoint)
    values = resolve_config(recipe, checkpoint).values
    assert written_notes(recipe, "gguf", values) == []
    changes = {"rope_attention_factor": 1.5, "rope_beta_fast": 16.0, "rope_beta_slow": 2.0}
    notes = written_notes(recipe, "gguf", values | changes)
    assert len(notes) == 3
    assert all("llama.cpp does not read it here" in note for note in notes)


@pytest.mark.parametrize(
    ("table", "written"),
    [
        ({}, {}),
        ({"beta_fast": None}, {}),
        ({"beta_fast": 32, "beta_slow": 1.0}, {"beta_fast": 32.0, "beta_slow": 1.0}),
        ({"beta_slow": 1}, {"beta_slow": 1.0}),
        ({"beta_fast": 32, "rope_type": "linear"}, {}),
    ],
)
def test_yarn_keys_are_written_where_they_are_there(
    tmp_path: Path, table: dict[str, Any], written: dict[str, float]
) -> None:
    """Write what a folder says, usual or not, as llama.cpp's converter does."""
    source = shutil.copytree(DATA / "tiny-yarn", tmp_path / "source")
    config = json.loads((source / "config.json").read_text())
    config["rope_scaling"] |= {"rope_type": "yarn"} | table
    del config["rope_scaling"]["type"]
    (source / "config.json").write_text(json.dumps(config))
    run(source, tmp_path / "x.gguf")
    keys, start = contents(tmp_path / "x.gguf")[0], "llama.rope.scaling.yarn_"
    betas = [key for key in keys if key.startswith(f"{start}beta")]
    assert {key.removeprefix(start): keys[key][1] for key in betas} == written
    run(tmp_path / "x.gguf", tmp_path / "back")
    back = json.loads((tmp_path / "back" / "config.json").read_text())["rope_parameters"]
    assert {key: back[key] for key in back if "beta" in key} == written


def test_published_names_of_gpt2_lack_the_prefix(tmp_path: Path) -> None:
    """Accept names without the prefix, and drop the causal masks."""
    from safetensors.numpy import save_file

    shutil.copytree(DATA / "tiny-gpt2", tmp_path / "gpt2")
    tensors = load_file(DATA / "tiny-gpt2" / "model.safetensors")
    bare = {name.removeprefix("transformer."): array for name, array in tensors.items()}
    masks = {f"h.{layer}.attn.bias": np.tri(64, dtype=np.float32) for layer in range(2)}
    save_file(bare | masks, tmp_path / "gpt2" / "model.safetensors")
    notes = run(tmp_path / "gpt2", tmp_path / "bare.gguf")
    assert "h.{0..1}.attn.bias is not needed to run and is dropped" in notes
    expected = contents(DATA / "tiny-gpt2" / "tiny-gpt2-f32.gguf")[1]
    assert sorted(contents(tmp_path / "bare.gguf")[1]) == sorted(expected)


def test_the_language_model_of_one_that_sees(tmp_path: Path) -> None:
    """Write a Gemma 3 of text alone, in either dialect."""
    source = DATA / "tiny-gemma3-vision"
    notes = run(source, tmp_path / "text", recipe="gemma3_vision")
    assert "the part that sees images is left out: 34 tensors" in notes
    run(source, tmp_path / "text.gguf")
    checkpoints = [open_checkpoint(tmp_path / name) for name in ("text", "text.gguf")]
    assert [find_recipe(checkpoint).name for checkpoint in checkpoints] == ["gemma3", "gemma3"]
    whole = load_file(source / "model.safetensors")
    written = load_file(tmp_path / "text" / "model.safetensors")
    language = {
        name.removeprefix("language_model."): array
        for name, array in whole.items()
        if name.startswith("language_model.")
    }
    assert written.keys() == language.keys()
    for name, array in written.items():
        np.testing.assert_allclose(array, language[name], atol=1.2e-7, err_msg=name)
    before = open_checkpoint(source)
    recipes = [load_recipe("gemma3_vision"), *(find_recipe(each) for each in checkpoints)]
    pairs = zip(recipes, (before, *checkpoints), strict=True)
    values = [resolve_config(recipe, checkpoint).values for recipe, checkpoint in pairs]
    assert all(same(values[0][field], one[field]) for one in values[1:] for field in values[0])


def test_part_of_what_is_left_out_may_be_missing(tmp_path: Path) -> None:
    """Transformers 5 names the parts otherwise, and tunes are saved without the part for images."""
    from safetensors.numpy import save_file

    shutil.copytree(DATA / "tiny-gemma3-vision", tmp_path / "tuned")
    whole = load_file(DATA / "tiny-gemma3-vision" / "model.safetensors")
    renamed = {
        name.replace("language_model.model.", "model.language_model."): array
        for name, array in whole.items()
        if name.startswith("language_model.")
    }
    save_file(renamed, tmp_path / "tuned" / "model.safetensors")
    assert not any("images" in note for note in run(tmp_path / "tuned", tmp_path / "a.gguf"))
    run(DATA / "tiny-gemma3-vision", tmp_path / "b.gguf")
    assert sorted(contents(tmp_path / "a.gguf")[1]) == sorted(contents(tmp_path / "b.gguf")[1])
