from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maxtool.errors import ConfigurationError
from maxtool.recipe import find_recipe, load_recipe, recipe_names, resolve_config, written_keys
from maxtool.recipe.schema import DIALECTS
from maxtool.weights import open_checkpoint

Edited = Callable[..., Path]
MODELS = ["stories260K", "llama", "mistral"]


def resolved(folder: Path, **options: object) -> dict[str, Any]:
    checkpoint = open_checkpoint(folder)
    return resolve_config(find_recipe(checkpoint), checkpoint, **options).values


@pytest.mark.reference
@pytest.mark.parametrize("name", MODELS)
def test_old_spelling_new_spelling_and_gguf_agree(
    reference: Path, tmp_path: Path, name: str
) -> None:
    folder = reference / name
    older = tmp_path / name
    older.mkdir()
    (older / "model.safetensors").symlink_to(folder / "model.safetensors")
    (older / "config.json").write_bytes((folder / "config.older.json").read_bytes())
    new = resolved(folder)
    assert resolved(older) == new
    found = resolved(folder / f"{name}-f32.gguf")
    # llama.cpp's converter leaves the window out, and what then is left is a Llama.
    assert {key: found[key] for key in new} == new | {"sliding_window": None}


def test_values_of_a_tied_older_configuration(edited: Edited) -> None:
    values = resolved(edited("tiny-llama-tied"))
    assert values["tie_word_embeddings"] is True
    assert values["qkv_bias"] is values["o_bias"] is True
    assert (values["rope_scaling"], values["rope_factor"]) == ("linear", 2.0)


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"head_dim": ...}, "head_dim", 10),
        ({"head_dim": None}, "head_dim", 10),
        ({"num_key_value_heads": ...}, "n_kv_heads", 4),
        ({"hidden_act": "swish"}, "hidden_act", "silu"),
        ({"rope_parameters": {"rope_theta": 7, "rope_type": "default"}}, "rope_theta", 7.0),
        ({"rope_parameters": None, "rope_theta": 9.5}, "rope_theta", 9.5),
        ({"rope_parameters": ...}, "rope_theta", 10000.0),
        ({"rope_parameters": {"type": "linear", "factor": 4}}, "rope_factor", 4.0),
        ({"rope_parameters": ..., "rope_scaling": None}, "rope_scaling", "none"),
    ],
)
def test_spellings_and_defaults(
    edited: Edited, changes: dict[str, Any], field: str, value: object
) -> None:
    folder = edited(config={"hidden_size": 40, "num_attention_heads": 4} | changes)
    assert resolved(folder)[field] == value


@pytest.mark.parametrize(
    ("changes", "window"),
    [({"sliding_window": None}, None), ({"sliding_window": ...}, 4096), ({}, 7)],
)
def test_no_window_and_no_key_differ(
    edited: Edited, changes: dict[str, Any], window: int | None
) -> None:
    assert resolved(edited("tiny-mistral", config=changes))["sliding_window"] == window


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"hidden_act": "prelu"}, "hidden_act: 'prelu' is not one of gelu, gelu_10"),
        ({"num_hidden_layers": ...}, "num_hidden_layers is missing"),
        ({"num_hidden_layers": "2"}, "is not a positive integer"),
        ({"num_hidden_layers": True}, "is not a positive integer"),
        ({"num_hidden_layers": 0}, "is not a positive integer"),
        ({"num_hidden_layers": -3}, "is not a positive integer"),
        ({"num_hidden_layers": 2.0}, "is not a positive integer"),
        ({"rms_norm_eps": "x"}, "is not a positive number"),
        ({"tie_word_embeddings": 1}, "is not true or false"),
        ({"head_dim": None, "hidden_size": 41}, "head_dim cannot be derived"),
        ({"rope_scaling": {"type": "mrope", "factor": 4.0}}, "'mrope'"),
        ({"rope_parameters": {"rope_type": "wave"}}, "'wave' is not supported (none, linear"),
        ({"rope_theta": 1.5}, "rope_theta = 1.5 disagrees with rope_parameters.rope_theta"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor = 0.5"),
        ({"rope_parameters": "linear"}, "rope_parameters = 'linear' is unknown"),
        ({"hidden_act": ["silu"]}, "hidden_act = ['silu'] is not a text"),
        ({"rope_interleaved": True}, "rope_interleaved = True is not supported (False is)"),
        ({"mystery": 3}, "mystery = 3 is unknown"),
        ({"mystery": {"deep": "x"}}, "mystery.deep = 'x' is unknown"),
        (
            {"quantization_config": {"bits": 4}},
            "quantization_config = {'bits': 4} is not supported",
        ),
    ],
)
def test_problems(edited: Edited, changes: dict[str, Any], problem: str) -> None:
    folder = edited(config=changes)
    with pytest.raises(ConfigurationError) as caught:
        resolved(folder)
    assert problem in str(caught.value)
    assert caught.value.file == str(folder / "config.json")


def test_all_problems_at_once(edited: Edited) -> None:
    folder = edited(config={"hidden_act": "prelu", "mystery": 3, "vocab_size": ...})
    with pytest.raises(ConfigurationError) as caught:
        resolved(folder)
    assert len(caught.value.problems) == 3


def test_details_of_an_unsupported_scaling_are_no_problems_of_their_own(edited: Edited) -> None:
    scaling = {"rope_type": "mrope", "factor": 8.0, "mrope_section": [16, 24, 24]}
    folder = edited(config={"rope_parameters": scaling})
    with pytest.raises(ConfigurationError) as caught:
        resolved(folder)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("value", [None, False, {}, []])
def test_an_unknown_key_that_is_off_is_noted(edited: Edited, value: object) -> None:
    checkpoint = open_checkpoint(edited(config={"mystery": value}))
    notes = resolve_config(load_recipe("llama"), checkpoint).notes
    assert len(notes) == 1
    assert notes[0].startswith("mystery")


def test_ignored_as_asked(edited: Edited) -> None:
    folder = edited(config={"mystery": {"deep": 3}, "rope_interleaved": True})
    resolved(folder, ignore=frozenset({"mystery", "rope_interleaved"}))
    with pytest.raises(ConfigurationError, match="mystery"):
        resolved(folder, ignore=frozenset({"rope_interleaved"}))


def test_quantization_is_never_ignored(edited: Edited) -> None:
    folder = edited(config={"quantization_config": {"bits": 4}})
    with pytest.raises(ConfigurationError, match="never ignored"):
        resolved(folder, ignore=frozenset({"quantization_config"}))


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-llama-tied", "tiny-mistral"])
def test_huggingface_keys_written_read_the_same(edited: Edited, name: str) -> None:
    from maxtool.conversion.hf_files import nested

    folder = edited(name)
    checkpoint = open_checkpoint(folder)
    recipe = find_recipe(checkpoint)
    values = resolve_config(recipe, checkpoint).values
    (folder / "config.json").write_text(json.dumps(nested(written_keys(recipe, "hf", values))))
    assert resolved(folder) == values


def test_no_window_is_written_as_null(edited: Edited) -> None:
    recipe = load_recipe("mistral")
    values = resolved(edited("tiny-mistral")) | {"sliding_window": None}
    assert written_keys(recipe, "hf", values)["sliding_window"] is None
    assert "llama.attention.sliding_window" not in written_keys(recipe, "gguf", values)


def test_a_value_without_a_spelling_is_refused(edited: Edited) -> None:
    recipe = load_recipe("mistral")
    values = resolved(edited("tiny-mistral")) | {"hidden_act": "gelu"}
    with pytest.raises(ConfigurationError, match="hidden_act = 'gelu' has no spelling"):
        written_keys(recipe, "gguf", values)


DECODERS = [name for name in recipe_names() if load_recipe(name).architecture == "decoder"]


@pytest.mark.parametrize("name", DECODERS)
def test_fields_are_those_of_the_decoder(name: str) -> None:
    from dataclasses import MISSING, fields

    from maxtool.architectures import DecoderConfig

    recipe = load_recipe(name)
    declared = fields(DecoderConfig)
    assert set(recipe.fields) <= {field.name for field in declared}
    assert set(recipe.fields) >= {one.name for one in declared if one.default is MISSING}
    assert all(recipe.rules[d].rules for d in DIALECTS if recipe.knows(d))


def test_a_table_under_two_names(edited: Callable[..., Path]) -> None:
    """Transformers reads one of them, others the other."""
    one = {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0}
    for other, passes in ((one, True), ({**one, "factor": 4.0}, False), ({}, True), (None, True)):
        folder = edited(config={"rope_parameters": one, "rope_scaling": other})
        checkpoint = open_checkpoint(folder)
        if passes:
            assert resolve_config(find_recipe(checkpoint), checkpoint).values["rope_factor"] == 2.0
        else:
            with pytest.raises(
                ConfigurationError, match=r"rope_scaling differ \(factor\): keep one"
            ):
                resolve_config(find_recipe(checkpoint), checkpoint)
        shutil.rmtree(folder)
