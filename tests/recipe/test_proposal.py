"""Recipes proposed for models that none recognises: families that are known, in disguise."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from maxtool.errors import ConfigurationError, UnknownArchitecture
from maxtool.recipe import Plan, find_recipe, load_recipe, plan
from maxtool.recipe.proposing.proposal import Proposal
from maxtool.recipe.proposing.propose import propose
from maxtool.recipe.proposing.toml_text import section
from maxtool.weights import open_checkpoint
from tests.effort import examples, sampled
from tests.variants.rows import Files, rows

DATA = Path(__file__).resolve().parents[1] / "data"
FOLDERS = sorted(
    folder.name
    for folder in DATA.glob("tiny-*")
    if (folder / "model.safetensors").is_file() and folder.name != "tiny-gemma3-vision"
)
LLAMA = "tiny-llama"
# Keys of most families, and what some family calls the same.
KEYS = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}


def disguised(
    name: str,
    folder: Path,
    segments: Mapping[str, str] | None = None,
    keys: Mapping[str, str] | None = None,
) -> Path:
    """A checkpoint of another kind, with other segments in names, and other keys."""
    shutil.copytree(DATA / name, folder)
    tensors = load_file(DATA / name / "model.safetensors")
    renamed = {spelled(key, segments or {}): value for key, value in tensors.items()}
    save_file(renamed, folder / "model.safetensors")
    config = json.loads((DATA / name / "config.json").read_text())
    config = {(keys or {}).get(key, key): value for key, value in config.items()}
    config |= {"model_type": "campfire", "architectures": ["CampfireModel"]}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def spelled(name: str, segments: Mapping[str, str]) -> str:
    return ".".join(segments.get(part, part) for part in name.split("."))


def planned(proposal: Proposal, folder: Path) -> Plan:
    """Plan the checkpoint by the proposed recipe, once that is read from a file."""
    file = folder / "proposed.toml"
    file.write_text(proposal.text("it"))
    return plan(load_recipe(str(file)), open_checkpoint(folder))


def original(name: str) -> Plan:
    checkpoint = open_checkpoint(DATA / name)
    return plan(find_recipe(checkpoint), checkpoint)


def sources(made: Plan, segments: Mapping[str, str] | None = None) -> dict[str, list[str]]:
    return {
        name: [spelled(source.name, segments or {}) for source in binding.sources]
        for name, binding in made.parameters.items()
    }


@pytest.mark.long
@pytest.mark.sampled
@pytest.mark.parametrize(
    "name", sampled(FOLDERS, LLAMA, "tiny-gpt2", "tiny-qwen3-moe", "tiny-bert")
)
def test_a_family_of_another_name(name: str, tmp_path: Path) -> None:
    folder = disguised(name, tmp_path / "it")
    proposal = propose(open_checkpoint(folder))
    assert proposal.open == []
    assert not proposal.names
    found, expected = planned(proposal, folder), original(name)
    assert sources(found) == sources(expected)
    assert found.config == expected.config
    assert proposal.base == expected.recipe.name


SEGMENTS = {"model": "transformer", "layers": "h", "self_attn": "attn", "norm": "ln_f"}
NORMS = {"input_layernorm": "ln_1", "post_attention_layernorm": "ln_2"}


@pytest.mark.sampled
@pytest.mark.parametrize("segments", [SEGMENTS, SEGMENTS | NORMS | {"mlp": "ffn"}])
@pytest.mark.parametrize("name", [LLAMA, "tiny-qwen3", "tiny-mixtral"])
def test_names_and_keys_of_other_families(
    name: str, segments: Mapping[str, str], tmp_path: Path
) -> None:
    folder = disguised(name, tmp_path / "it", segments, KEYS)
    proposal = propose(open_checkpoint(folder))
    assert proposal.open == []
    assert {*KEYS.values()} == {*proposal.keys.values()}
    found, expected = planned(proposal, folder), original(name)
    assert sources(found) == sources(expected, segments)
    assert found.config == expected.config


@pytest.mark.long
def test_parameters_without_a_word_of_their_own(tmp_path: Path) -> None:
    """Find A_log, D and dt_bias below another name, as the matrices beside them."""
    checkpoint = Files(tmp_path).checkpoint(next(rows("bamba")))
    file = checkpoint.path / "model.safetensors"
    called = {"mamba": "ssm"}
    save_file({spelled(name, called): each for name, each in load_file(file).items()}, file)
    config = json.loads((checkpoint.path / "config.json").read_text()) | {"model_type": "campfire"}
    (checkpoint.path / "config.json").write_text(json.dumps(config))
    proposal = propose(open_checkpoint(checkpoint.path))
    assert (proposal.base, proposal.open) == ("bamba", [])


@pytest.mark.long
def test_sizes_of_experts_by_keys_that_nobody_has(tmp_path: Path) -> None:
    """Take what the tensors say of a number for the key that alone says it."""
    keys = {"num_experts": "slots", "moe_intermediate_size": "slot_dim"}
    folder = disguised("tiny-qwen3-moe", tmp_path / "it", {"mlp": "ffn"}, keys)
    proposal = propose(open_checkpoint(folder))
    assert (proposal.base, proposal.open) == ("qwen3_moe", [])
    assert proposal.keys == {"n_experts": "slots", "expert_size": "slot_dim"}
    assert planned(proposal, folder).config == original("tiny-qwen3-moe").config


def test_words_that_are_short_for_others(tmp_path: Path) -> None:
    segments = {"self_attn": "attention", "q_norm": "query_norm", "k_norm": "key_norm"}
    folder = disguised("tiny-qwen3", tmp_path / "it", segments | {"mlp": "ffn"})
    proposal = propose(open_checkpoint(folder))
    assert (proposal.base, proposal.open) == ("qwen3", [])
    assert sources(planned(proposal, folder)) == sources(
        original("tiny-qwen3"), segments | {"mlp": "ffn"}
    )


def test_a_family_that_shares_fewer_names_than_many_others(tmp_path: Path) -> None:
    """Find nanochat, whose norms have no weights, where its MLP is called as in most families."""
    row = next(rows("nanochat"))
    checkpoint = Files(tmp_path).checkpoint(row)
    file = checkpoint.path / "model.safetensors"
    called = {"fc1": "up_proj", "fc2": "down_proj"}
    save_file({spelled(name, called): each for name, each in load_file(file).items()}, file)
    config = json.loads((checkpoint.path / "config.json").read_text()) | {"model_type": "campfire"}
    (checkpoint.path / "config.json").write_text(json.dumps(config))
    proposal = propose(open_checkpoint(checkpoint.path))
    assert (proposal.base, proposal.open) == ("nanochat", [])


def test_a_gguf_file(tmp_path: Path) -> None:
    source = DATA / "tiny-falcon" / "tiny-falcon-f32.gguf"
    file = tmp_path / "it.gguf"
    file.write_bytes(source.read_bytes().replace(b"falcon", b"flacon"))
    proposal = propose(open_checkpoint(file))
    assert (proposal.base, proposal.open) == ("falcon", [])
    text = proposal.text("it")
    assert tomllib.loads(text)["match"] == {"gguf": {"general.architecture": ["flacon"]}}
    (tmp_path / "flacon.toml").write_text(text)
    found = plan(load_recipe(str(tmp_path / "flacon.toml")), open_checkpoint(file))
    checkpoint = open_checkpoint(source)
    expected = plan(find_recipe(checkpoint), checkpoint)
    assert sources(found) == sources(expected)
    assert found.config == expected.config


WORDS = st.text("abcdefghijklmnopqrstuvwxyz", min_size=4, max_size=9)


@pytest.mark.long
@settings(max_examples=examples(2, 4), suppress_health_check=[*HealthCheck], deadline=None)
@given(prefix=st.lists(WORDS, min_size=1, max_size=3).map(".".join), layers=WORDS)
def test_any_prefix(prefix: str, layers: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tell parts by their own names, whatever stands before them."""
    segments = {"model": prefix, "layers": layers}
    folder = disguised(LLAMA, tmp_path_factory.mktemp("new") / "it", segments)
    proposal = propose(open_checkpoint(folder))
    assert proposal.open == []
    assert sources(planned(proposal, folder)) == sources(original(LLAMA), segments)


def test_what_is_not_explained_is_told(tmp_path: Path) -> None:
    folder = disguised(LLAMA, tmp_path / "it")
    config = json.loads((folder / "config.json").read_text())
    config |= {"residual_gain": 0.5, "hidden_act": "xielu"}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.mlp.act.alpha"] = np.ones(1, np.float32)
    save_file(tensors, folder / "model.safetensors")
    proposal = propose(open_checkpoint(folder))
    told = "\n".join(proposal.open)
    assert "residual_gain = 0.5 is not explained" in told
    assert "hidden_act: 'xielu' is not one of gelu, gelu_10" in told
    assert "not used: model.layers.0.mlp.act.alpha [1]" in told
    assert all(f"# OPEN: {line}\n" in proposal.text("it") for line in proposal.open)
    with pytest.raises(ConfigurationError, match="does not fit"):
        planned(proposal, folder)


@pytest.mark.long
def test_sizes_of_a_table_are_told_by_tensors(tmp_path: Path) -> None:
    folder = tmp_path / "campfire"
    shutil.copytree(DATA / "tiny-gemma3-vision", folder)
    config = json.loads((folder / "config.json").read_text())
    text = {**config["text_config"], "model_type": "campfire_text"}
    text["n_across"] = text.pop("hidden_size")
    config |= {"model_type": "campfire", "text_config": text}
    (folder / "config.json").write_text(json.dumps(config))
    assert propose(open_checkpoint(folder)).keys["hidden_size"] == "n_across"


@pytest.mark.long
def test_names_that_are_as_like_to_two_are_left(tmp_path: Path) -> None:
    """Gate and up have one shape: which is which, no header tells."""
    segments = {"gate_proj": "proj_a", "up_proj": "proj_b"}
    proposal = propose(open_checkpoint(disguised(LLAMA, tmp_path / "it", segments)))
    told = "\n".join(proposal.open)
    assert "missing: model.layers.{0..1}.mlp.up_proj.weight" in told
    assert "not used: model.layers.{0..1}.mlp.proj_a.weight" in told
    assert "not used: model.layers.{0..1}.mlp.proj_b.weight" in told
    assert not proposal.names


def test_recipes_that_are_as_near_are_told_with_what_they_mean(tmp_path: Path) -> None:
    proposal = propose(open_checkpoint(disguised("tiny-qwen3", tmp_path / "it")))
    assert proposal.base == "qwen3"
    assert proposal.alike["exaone4"]["block"] == "post"
    assert proposal.alike["hunyuan_v1_dense"]["qk_norm_after_rope"] is True
    text = proposal.text("it")
    assert "# As near: exaone4, with block = 'post'" in text
    assert "# As near: hunyuan_v1_dense, with qk_norm_after_rope = True" in text
    assert "qwen3_vl" not in text  # which reads nothing of it otherwise


def test_flags_follow_from_tensors(tmp_path: Path) -> None:
    """Biases of query, key and value, of which no key says that they are there."""
    folder = disguised("tiny-qwen2", tmp_path / "it")
    proposal = propose(open_checkpoint(folder))
    assert proposal.open == []
    assert any(name.endswith("q.bias") for name in planned(proposal, folder).parameters)


def test_checkpoints_of_no_kind_are_refused(tmp_path: Path) -> None:
    folder = disguised(LLAMA, tmp_path / "it")
    config = json.loads((folder / "config.json").read_text())
    del config["model_type"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnknownArchitecture, match="does not say what kind of model it is"):
        propose(open_checkpoint(folder))
    (folder / "config.json").unlink()
    with pytest.raises(ConfigurationError, match="no config"):
        propose(open_checkpoint(folder))
    config["model_type"] = "campfire"
    (folder / "config.json").write_text(json.dumps(config))
    many = {f"a{number}.b": np.zeros(1, np.float32) for number in range(600)}
    save_file(many, folder / "model.safetensors")
    with pytest.raises(UnknownArchitecture, match="more than 200 names"):
        propose(open_checkpoint(folder))


@pytest.mark.parametrize("kind", ["hy_v4", "gemma4_unified_assistant", "paligemma"])
def test_kinds_that_no_recipe_can_describe_are_refused(kind: str, tmp_path: Path) -> None:
    """Refuse: a recipe of what is near would be wrong, however much it leaves open."""
    folder = disguised(LLAMA, tmp_path / kind)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": kind}))
    with pytest.raises(UnknownArchitecture, match=f"proposed for a '{kind}': it"):
        propose(open_checkpoint(folder))


def test_names_cannot_leave_a_comment(tmp_path: Path) -> None:
    folder = disguised(LLAMA, tmp_path / "it")
    tensors = load_file(folder / "model.safetensors")
    tensors["x\n[match.hf]\nmodel_type = ['llama']"] = np.ones(1, np.float32)
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["gain\nname = 'llama' # \ud800"] = 0.5
    (folder / "config.json").write_text(json.dumps(config))
    proposal = propose(open_checkpoint(folder))
    assert len(proposal.open) == 2
    text = proposal.text("it\nname = 'x'")
    assert tomllib.loads(text)["match"] == {"hf": {"model_type": ["campfire"]}}
    assert text.encode().count(b"# OPEN: ") == 2


VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=9,
)


@given(st.dictionaries(st.text(), VALUES))
def test_tables_are_read_back_as_they_were_written(table: dict[str, object]) -> None:
    lines = "\n".join(section("x", table))
    assert tomllib.loads(lines) == {"x": table}
