"""Language models inside checkpoints of several parts that no recipe has the whole of."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from maxtool.conversion import Request, convert, prepare
from maxtool.errors import MaxtoolError, ModelMismatch, UnknownArchitecture
from maxtool.recipe import Plan, find_recipe, load_recipe, plan, recognise, resolve_config
from maxtool.weights import Checkpoint, open_checkpoint
from tests.data.seeded import Array, sample, tensors
from tests.parity.traced import TracedModel
from tests.variants.rows import ALLOWED, Row, error, inputs, rows

VISION = {"vision_config": {"model_type": "pixtral", "num_hidden_layers": 1}, "image_token_id": 9}
SEEN = ("vision_tower.patch.weight", "multi_modal_projector.a.weight", "model.visual.b.weight")
HEAD = "lm_head.weight"
Spelled = Callable[[str], str]


def below(prefix: str) -> Spelled:
    """Names of a whole language model below a prefix."""
    return lambda name: f"{prefix}.{name}"


def inside(prefix: str) -> Spelled:
    """Names of a model without its head below a prefix, the head beside it."""
    return lambda name: name if name == HEAD else name.replace("model.", f"{prefix}.", 1)


SPELLINGS: Mapping[str, Spelled] = {
    "published": below("language_model"),
    "transformers 5": inside("model.language_model"),
    "idefics": inside("model.text_model"),
    "without a head": inside("language_model"),
    "DeepSeek": below("language"),
    "Ovis": below("llm"),
    "HyperCLOVA": below("model.language_model"),
}


def whole(
    folder: Path,
    text: Mapping[str, Any],
    held: Mapping[str, Array],
    *,
    spelled: Spelled = SPELLINGS["published"],
    section: str = "text_config",
    **outer: Any,
) -> Checkpoint:
    """A model of texts in the files of one that sees images, too."""
    named = {spelled(name): array for name, array in held.items()}
    folder.mkdir(exist_ok=True)
    save_file(named | {name: np.ones(2, "f4") for name in SEEN}, folder / "model.safetensors")
    config = {"model_type": "new_vl", section: dict(text), **VISION, **outer}
    kept = {key: value for key, value in config.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(kept))
    return open_checkpoint(folder)


def recorded(family: str) -> tuple[Row, dict[str, Array]]:
    """A recorded model, and its tensors."""
    row = next(row for row in rows(family) if not row.config["tie_word_embeddings"])
    return row, tensors(row.shapes, row.norm)


def fitting(checkpoint: Checkpoint) -> Plan:
    """The checkpoint, matched with the recipe that recognises it.

    Raises:
        MaxtoolError: If it does not fit.
    """
    planned = plan(find_recipe(checkpoint), checkpoint)
    planned.check()
    return planned


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_every_spelling(family: str, spelling: str, tmp_path: Path) -> None:
    row, held = recorded(family)
    checkpoint = whole(tmp_path, row.config, held, spelled=SPELLINGS[spelling])
    assert find_recipe(checkpoint).name == family
    assert row.expected is not None
    logits = TracedModel(checkpoint).forward(inputs(row)["input_ids"])
    assert error(sample(logits), row.expected) < ALLOWED


@pytest.mark.parametrize("family", ["ministral3", "gemma2", "cohere2", "lfm2", "deepseek_v3"])
def test_families(family: str, tmp_path: Path) -> None:
    row = next(iter(rows(family)))
    checkpoint = whole(tmp_path, row.config, tensors(row.shapes, row.norm))
    logits = TracedModel(checkpoint).forward(inputs(row)["input_ids"])
    assert row.expected is not None
    assert error(sample(logits), row.expected) < ALLOWED


def test_a_body_with_a_name_of_its_own(tmp_path: Path) -> None:
    row, held = recorded("falcon")
    names = {name: name.replace("transformer.", "model.language_model.", 1) for name in held}
    checkpoint = whole(tmp_path, row.config, held, spelled=names.__getitem__)
    assert [*fitting(checkpoint).parameters] != []


@pytest.mark.parametrize("section", ["text_config", "llm_config", "language_config"])
def test_what_is_left_out_is_told(section: str, tmp_path: Path) -> None:
    row, held = recorded("llama")
    planned = fitting(whole(tmp_path, row.config, held, section=section))
    assert planned.notes[0] == (
        f"of this new_vl only the language model is read, the llama of {section}; left out: "
        "model.visual (1 tensors), multi_modal_projector (1 tensors), vision_tower (1 tensors), "
        "vision_config"
    )
    assert {*SEEN} <= {*planned.dropped}
    assert recognise(planned.checkpoint).part == planned.notes[0]


def test_keys_outside_describe_something_else(tmp_path: Path) -> None:
    row, held = recorded("llama")
    others = {"rope_theta": 7.0, "rms_norm_eps": 0.5, "hidden_size": 3, "head_dim": 2}
    text = {key: value for key, value in row.config.items() if key != "rms_norm_eps"}
    planned = fitting(whole(tmp_path, text, held, **others))
    assert planned.config["norm_eps"] == 1e-6
    assert planned.config["hidden_size"] == row.config["hidden_size"]
    assert planned.config["rope_theta"] == row.config["rope_parameters"]["rope_theta"]


# The outer table, the inner one, whether the file has a head, whether it is tied (None: refused).
TIES = [
    (..., ..., True, False),
    (..., ..., False, None),
    (..., True, False, True),
    (..., False, True, False),
    (..., False, False, None),
    (True, ..., False, True),
    (True, ..., True, False),
    (True, False, False, True),
    (True, False, True, False),
    (False, ..., True, False),
    (False, ..., False, None),
    (False, False, False, None),
    (False, True, False, True),
    (False, True, True, False),
    (True, True, True, None),
]


@pytest.mark.parametrize(("outer", "inner", "has_head", "tied"), TIES)
def test_heads(outer: Any, inner: Any, has_head: bool, tied: bool | None, tmp_path: Path) -> None:
    """A head counts where there is one, and a tie of either table where there is none."""
    row, held = recorded("llama")
    text = {k: v for k, v in row.config.items() if k != "tie_word_embeddings"}
    text |= {} if inner is ... else {"tie_word_embeddings": inner}
    kept = {name: array for name, array in held.items() if has_head or name != HEAD}
    checkpoint = whole(tmp_path, text, kept, tie_word_embeddings=outer)
    if tied is None:
        with pytest.raises(ModelMismatch, match="lm_head"):
            fitting(checkpoint)
    else:
        assert fitting(checkpoint).config["tie_word_embeddings"] is tied


def test_a_head_that_is_not_said_to_be_tied_where_the_family_is(tmp_path: Path) -> None:
    """Gemma's head is tied unless a table says otherwise; the outer one may."""
    row = next(row for row in rows("gemma") if row.config["tie_word_embeddings"])
    text = {k: v for k, v in row.config.items() if k != "tie_word_embeddings"}
    held = tensors(row.shapes, row.norm)
    assert fitting(whole(tmp_path / "a", text, held)).config["tie_word_embeddings"] is True
    held[HEAD] = held["model.embed_tokens.weight"] * 2
    with pytest.raises(ModelMismatch, match="differs"):
        fitting(whole(tmp_path / "b", text, held))
    planned = fitting(whole(tmp_path / "c", text, held, tie_word_embeddings=False))
    assert planned.config["tie_word_embeddings"] is False


def test_sizes_that_are_left_out(tmp_path: Path) -> None:
    """Read them as transformers does: older releases wrote none that were usual."""
    _, held = recorded("llama")
    text = {"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096}
    checkpoint = whole(tmp_path, text, held, tie_word_embeddings=False)
    found = resolve_config(find_recipe(checkpoint), checkpoint).values
    sizes = ("hidden_size", "intermediate_size", "n_layers", "n_heads", "n_kv_heads", "vocab_size")
    assert [found[name] for name in sizes] == [4096, 11008, 32, 32, 32, 32064]


@pytest.mark.parametrize(
    ("said", "base"),
    [
        ({}, 1e8),
        ({"rope_theta": 7.0}, 7.0),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}, 7.0),
        ({"rope_parameters": {"rope_type": "default"}}, 1e8),
    ],
)
def test_what_the_class_of_the_whole_puts_into_the_table(
    said: dict[str, Any], base: float, tmp_path: Path
) -> None:
    """Voxtral's language model is no usual Llama where its table leaves keys out."""
    _, held = recorded("llama")
    checkpoint = whole(tmp_path, {"model_type": "llama", **said}, held, model_type="voxtral")
    found = resolve_config(find_recipe(checkpoint), checkpoint).values
    assert (found["rope_theta"], found["norm_eps"]) == (base, 1e-5)
    assert (found["n_layers"], found["n_kv_heads"], found["head_dim"]) == (30, 8, 128)


def test_tensors_of_the_language_model_are_all_known(tmp_path: Path) -> None:
    """Layers that attend to images, for one, are not left out in silence."""
    row, held = recorded("llama")
    held["model.layers.0.cross_attn.q_proj.weight"] = np.ones((2, 2), "f4")
    with pytest.raises(ModelMismatch, match=r"not used: language_model.*cross_attn"):
        fitting(whole(tmp_path, row.config, held))


def test_a_head_in_two_places(tmp_path: Path) -> None:
    row, held = recorded("llama")
    spelled = SPELLINGS["published"]
    names = {name: spelled(name) for name in held} | {"head": HEAD}
    checkpoint = whole(tmp_path, row.config, {**held, "head": held[HEAD]}, spelled=names.get)  # type: ignore[arg-type]
    with pytest.raises(ModelMismatch, match="in another spelling"):
        fitting(checkpoint)


def test_quantization_outside_is_not_passed_over(tmp_path: Path) -> None:
    row, held = recorded("llama")
    said = {"quant_method": "strange"}
    with pytest.raises(ModelMismatch, match="quantization_config"):
        fitting(whole(tmp_path, row.config, held, quantization_config=said))
    with pytest.raises(ModelMismatch, match="quantization_config"):
        fitting(whole(tmp_path, {**row.config, "quantization_config": said}, held))


@pytest.mark.parametrize("place", ["outside", "inside", "both"])
def test_quantization_of_the_language_model(place: str, tmp_path: Path) -> None:
    """Blocks of float8, as the whole configuration says, or the table (Kimi K2.5)."""
    row, held = recorded("llama")
    said = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    name = "model.layers.0.mlp.up_proj.weight"
    scaled = {**held, name: held[name].astype(ml_dtypes.float8_e4m3fn)}
    spelled = {f"language_model.{key}": array for key, array in scaled.items()}
    spelled[f"language_model.{name}_scale_inv"] = np.full((1, 1), 2, np.float32)
    inner = {**row.config} | ({} if place == "outside" else {"quantization_config": said})
    outer = {} if place == "inside" else {"quantization_config": said}
    checkpoint = whole(tmp_path, inner, spelled, spelled=str, **outer)
    if place == "both":
        with pytest.raises(ModelMismatch, match="quantization_config"):
            fitting(checkpoint)
    else:
        read = fitting(checkpoint).read("layers.0.mlp.up.weight").data
        assert np.array_equal(read, scaled[name].astype(np.float32) * 2)


def test_how_attention_is_run_changes_nothing(tmp_path: Path) -> None:
    """Published tables of InternVL say it."""
    row, held = recorded("llama")
    text = {**row.config, "attn_implementation": "flash_attention_2"}
    assert fitting(whole(tmp_path, text, held, section="llm_config")).parameters


def test_what_is_unknown_is_told(tmp_path: Path) -> None:
    row, held = recorded("llama")
    checkpoint = whole(tmp_path, {**row.config, "model_type": "qwen9"}, held)
    with pytest.raises(UnknownArchitecture, match=r"'new_vl' \(model_type\).*'qwen9' of its text_"):
        find_recipe(checkpoint)
    assert "'qwen9' of its text_config" in recognise(checkpoint).problems[0]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("gemma4_assistant", "drafts for another model"),
        ("gemma4_unified_assistant", "drafts for another model"),
        ("jev", "chooses among options"),
        ("paligemma", "whole prompt"),
        ("shieldgemma2", "classes of images"),
        ("spatialvla", "whole prompt"),
    ],
)
def test_models_that_are_not_read_by_part(kind: str, why: str, tmp_path: Path) -> None:
    row, held = recorded("llama")
    checkpoint = whole(tmp_path, row.config, held, model_type=kind)
    with pytest.raises(UnknownArchitecture, match=why) as refused:
        find_recipe(checkpoint)
    with pytest.raises(UnknownArchitecture, match=why) as by_name:
        plan(load_recipe("llama"), checkpoint)
    assert str(by_name.value) == str(refused.value)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"is_causal": False}, "is_causal = False beside text_config"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention = True beside"),
    ],
)
def test_attention_to_what_follows_is_not_passed_over(
    said: dict[str, Any], why: str, tmp_path: Path
) -> None:
    row, held = recorded("llama")
    checkpoint = whole(tmp_path / "outside", row.config, held, **said)
    with pytest.raises(UnknownArchitecture, match=why):
        find_recipe(checkpoint)
    with pytest.raises(UnknownArchitecture, match=why):
        plan(load_recipe("llama"), checkpoint)
    inner = {**row.config, "is_causal": False}
    planned = fitting(whole(tmp_path / "inside", inner, held, is_causal=False))
    assert planned.config["bidirectional"] is True


def test_models_made_of_paligemma_are_not_read_by_part(tmp_path: Path) -> None:
    row = next(iter(rows("gemma2")))
    held = tensors(row.shapes, row.norm)
    assert fitting(whole(tmp_path / "another", row.config, held)).recipe.name == "gemma2"
    with pytest.raises(UnknownArchitecture, match=r"projection_dim shows .* whole prompt"):
        find_recipe(whole(tmp_path / "such", row.config, held, projection_dim=8))


def test_prefixes_that_are_unknown(tmp_path: Path) -> None:
    row, held = recorded("llama")
    checkpoint = whole(tmp_path, row.config, held, spelled=below("brain"))
    with pytest.raises(UnknownArchitecture, match="below none of language_model, "):
        find_recipe(checkpoint)
    with pytest.raises(UnknownArchitecture, match="below none of language_model, "):
        plan(load_recipe("llama"), checkpoint)


def test_an_encoder_inside_is_no_language_model(tmp_path: Path) -> None:
    row = next(iter(rows("bert")))
    checkpoint = whole(tmp_path, row.config, tensors(row.shapes, row.norm))
    with pytest.raises(UnknownArchitecture, match="which no recipe recognises"):
        find_recipe(checkpoint)


def test_a_recipe_by_name_reads_the_part_too(tmp_path: Path) -> None:
    row, held = recorded("llama")
    checkpoint = whole(tmp_path, row.config, held)
    planned = plan(load_recipe("llama"), checkpoint)
    planned.check()
    assert planned.recipe.section == "text_config"
    with pytest.raises(MaxtoolError):
        plan(load_recipe("qwen2"), checkpoint).check()


@pytest.mark.parametrize("form", ["hf", "gguf"])
def test_what_is_written_is_the_language_model_alone(form: str, tmp_path: Path) -> None:
    row, held = recorded("llama")
    source = tmp_path / "whole"
    whole(source, row.config, held)
    output = tmp_path / ("part" if form == "hf" else "part.gguf")
    convert(prepare(Request(source, output)))
    again = open_checkpoint(output)
    assert find_recipe(again).section == ""
    assert row.expected is not None
    assert error(sample(TracedModel(again).forward(inputs(row)["input_ids"])), row.expected) < 1e-4
    if form == "hf":
        assert {*load_file(output / "model.safetensors")} == {*held}
        assert json.loads((output / "config.json").read_text())["model_type"] == "llama"


def test_experts_that_are_kept_the_other_way(tmp_path: Path) -> None:
    """Read what transformers 5 writes of Qwen 3 VL: a row of experts for each output."""
    row = next(row for row in rows("qwen3_vl_moe") if not row.config["tie_word_embeddings"])
    held = tensors(row.shapes, row.norm)
    turned = {
        name: np.ascontiguousarray(each.swapaxes(1, 2)) if ".mlp.experts." in name else each
        for name, each in held.items()
    }
    assert row.expected is not None
    for index, files in enumerate((held, turned)):
        folder = tmp_path / str(index)
        folder.mkdir()
        save_file(files, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(row.config))
        logits = TracedModel(open_checkpoint(folder)).forward(inputs(row)["input_ids"])
        assert error(sample(logits), row.expected) < ALLOWED
