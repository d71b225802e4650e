from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool.errors import (
    ConfigurationError,
    MissingFile,
    UnknownArchitecture,
    UnknownRecipe,
)
from maxtool.recipe import Recipe, find_recipe, load, load_recipe, recipe_names
from maxtool.recipe.parse import parse
from maxtool.recipe.problems import Problems
from maxtool.recipe.unsupported_kinds import LACKING
from maxtool.weights import open_checkpoint

Q = '"layers.{layer}.attn.q.weight" = "model.layers.{layer}.self_attn.q_proj.weight"'
TYPE = 'model_type = "llama"'
DOWN = '"norm.weight" = "model.norm.weight"'


ENTRIES = {
    "decoder": {"forward", "prefill", "decode", "embed", "classify"},
    "encoder": {"forward", "embed", "classify"},
    "image_encoder": {"forward", "embed", "classify"},
    "image_text": {"forward", "prefill", "decode", "embed", "look", "classify"},
    "resnet": {"forward", "embed", "classify"},
    "convnext": {"forward", "embed", "classify"},
    "seq2seq": {"encode", "prefill", "decode"},
    "dual_encoder": {"forward", "embed", "embed_image", "score"},
    "speech": {"encode", "prefill", "decode"},
}
# Of a decoder that makes vectors, and nothing else.
VECTORS = {name: {"forward", "embed", "classify"} for name in ("eurobert", "gemma_embedding")}


def test_shipped_recipes_load() -> None:
    assert {"llama", "mistral", "bert", "nomic_bert"} <= set(recipe_names())
    for name in recipe_names():
        recipe = load_recipe(name)
        assert recipe.name == name
        assert {"float32", "float16", "bfloat16"} == set(recipe.check)
        assert set(recipe.entries) == VECTORS.get(name, ENTRIES[recipe.architecture])


def test_unknown_name_suggests() -> None:
    with pytest.raises(UnknownRecipe, match="did you mean 'llama'"):
        load_recipe("lama")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        load_recipe(str(tmp_path / "none.toml"))


def test_no_toml(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("schema = = 1")
    with pytest.raises(ConfigurationError, match="not TOML"):
        load_recipe(str(file))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("schema = 2", "schema = 3", "schema: this maxtool reads schema 2"),
        ('name = "llama"', 'name = "llama"\nbogus = 1', "unknown key 'bogus'"),
        ('architecture = "decoder"', "architecture = 3", "architecture: needs a text"),
        ('type = "int"\nhf = "vocab_size"', 'type = "real"', "type 'real' is not one of"),
        ('hf = "hidden_size"', 'hff = "hidden_size"', "config.hidden_size: unknown key 'hff'"),
        ('hf = "hidden_size", ', "", "config.hidden_size: has neither a hf spelling nor a default"),
        ('{ field = "n_heads" }', '{ field = "heads" }', "needs the unknown field 'heads'"),
        (
            '{ field = "n_heads" }',
            '{ field = "rope_theta" }',
            "needs 'rope_theta', which comes later",
        ),
        ('{ field = "n_heads" }', '{ half = "n_heads" }', "a default is a value or one of"),
        ('["hidden_size", "n_heads"]', '["hidden_size"]', "quotient takes 2 operands"),
        ('{ rows = "token_embd.weight" }', '{ cols = "x" }', "neither a key nor one of"),
        (Q, Q.replace("}.self", "}x.self"), "mixes text with an index"),
        (Q, Q.replace("model.layers.{layer}", "model.layers.{block}"), "unknown index {block}"),
        (Q, Q.replace("model.layers.{layer}", "model"), "lacks the index {layer}"),
        (Q, Q.replace("model.layers", "*"), "'*' may only stand in drop"),
        (Q, "", "weights.hf: no rule for 'layers.{layer}.attn.q.weight'"),
        (TYPE, "model_type = 2020-01-01", "constants.hf.model_type: needs a text, a number"),
        (TYPE, 'model_type = [1, "x"]', "constants.hf.model_type: needs a text, a number"),
        (TYPE, "model_type = [5_000_000_000]", "[5000000000] does not fit 32 bits"),
        (DOWN, '"norm.weight" = "lm_head.weight"', "is used by 2 rules, which has no inverse"),
        (DOWN, '"norm.weight" = { op = "add", value = 1 }', "'from' is missing"),
        (DOWN, '"norm.weight" = { from = "n", op = "sqrt" }', "unknown operation 'sqrt'"),
        (DOWN, '"norm.weight" = { from = "n", op = "unstack", axis = 0 }', "unknown operation"),
        (DOWN, '"norm.weight" = { from = "n", op = "add" }', "add: 'value' is missing"),
        (DOWN, '"norm.weight" = { from = "n", op = "add", value = "x" }', "value needs a number"),
        (
            DOWN,
            '"norm.weight" = { from = "n", op = "add", value = 1, bye = 2 }',
            "unknown key 'bye'",
        ),
        (DOWN, '"norm.weight" = { from = "n", op = "transpose", axes = [0, 0] }', "permutation"),
        (DOWN, '"norm.weight" = { from = ["a", "b"] }', "several sources need concat or stack"),
        (
            DOWN,
            '"norm.weight" = { from = ["a", "b"], op = "concat", axis = 0, sizes = [1] }',
            "as many sizes as sources",
        ),
        (
            DOWN,
            '"norm.weight" = { from = "n", op = "split", axis = 0, sizes = [1, 2], part = 0 }',
            "needs a rule for each of the parts [0, 1], found [0]",
        ),
        (
            DOWN,
            '"norm.weight" = { from = "n", op = "split", axis = 0, sizes = [1, 2] }',
            "'part' and split go together",
        ),
        (
            DOWN,
            '"norm.weight" = { from = "n.{e}", op = "stack", axis = 0, count = "n_layers" }',
            "'over' and stack go together",
        ),
        (
            'heads = "n_kv_heads" }\n"layers.{layer}.attn.k.bias"',
            'heads = "n_groups" }\n"layers.{layer}.attn.k.bias"',
            "'n_groups' is not a field",
        ),
        ('tie = "embed.weight"', 'tie = "embedding.weight"', "which has no rule"),
        (", when = { tie_word_embeddings = true }", "", "a 'tie' needs a 'when'"),
        (
            "float32 = { rtol = 1e-4, atol = 1e-5 }",
            "float32 = { rtol = 1e-4 }",
            "needs rtol and atol",
        ),
        ("float32 = { rtol", "float31 = { rtol", "check.float31: is not an element type"),
    ],
)
def test_problems(written: Callable[..., Path], old: str, new: str, problem: str) -> None:
    file = written((old, new))
    with pytest.raises(ConfigurationError) as caught:
        load_recipe(str(file))
    assert caught.value.file == str(file)
    assert problem in str(caught.value)


def test_all_problems_at_once(written: Callable[..., Path]) -> None:
    file = written((Q, Q.replace("{layer}.self", "{layer}x.self")), ("atol = 2e-2", "btol = 1"))
    with pytest.raises(ConfigurationError) as caught:
        load_recipe(str(file))
    assert len(caught.value.problems) >= 3


def test_unknown_architecture_lists_recipes(edited: Callable[..., Path]) -> None:
    checkpoint = open_checkpoint(edited(config={"model_type": "qwen9"}))
    with pytest.raises(
        UnknownArchitecture,
        match=r"'qwen9'.*mbart, mellum, mimo_v2_flash, minicpm3, minimax_m2, ministral, ministral3",
    ):
        find_recipe(checkpoint)


@pytest.mark.parametrize("kind", LACKING)
def test_kinds_that_no_recipe_can_describe(edited: Callable[..., Path], kind: str) -> None:
    checkpoint = open_checkpoint(edited(config={"model_type": kind}))
    with pytest.raises(UnknownArchitecture, match=f"{kind}.*, which no recipe recognises: it "):
        find_recipe(checkpoint)


@pytest.mark.parametrize("found", [["llama"], 3, None, {"llama": 1}])
def test_an_architecture_that_is_no_name(edited: Callable[..., Path], found: object) -> None:
    with pytest.raises(UnknownArchitecture):
        find_recipe(open_checkpoint(edited(config={"model_type": found})))


def test_formats_without_recipes(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.ones(2))
    with pytest.raises(UnknownArchitecture, match="no recipe reads npz files") as caught:
        find_recipe(open_checkpoint(tmp_path / "x.npz"))
    copies = "convert --no-recipe copies tensors as they are"
    assert caught.value.hint == f"recipes read safetensors, pytorch, gguf; {copies}"


def test_a_folder_without_configuration(edited: Callable[..., Path]) -> None:
    folder = edited()
    (folder / "config.json").unlink()
    with pytest.raises(ConfigurationError, match=r"no config\.json"):
        find_recipe(open_checkpoint(folder))


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-llama-tied", "tiny-mistral"])
def test_recognised(edited: Callable[..., Path], name: str) -> None:
    assert find_recipe(open_checkpoint(edited(name))).name == name.split("-")[1]


def test_only_the_recipe_that_recognises_a_model_is_looked_at(
    edited: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def noted(data: Mapping[str, Any], file: Path, problems: Problems) -> Recipe | None:
        read.append(file.stem)
        return parse(data, file, problems)

    monkeypatch.setattr(load, "parse", noted)
    load._kept.cache_clear()
    assert find_recipe(open_checkpoint(edited("tiny-qwen2"))).name == "qwen2"
    assert read == ["qwen2"]


@pytest.mark.parametrize(("keys", "name"), [({}, "bamba"), ({"scale": 0.25}, "granitehybrid")])
def test_a_key_that_must_not_be_there(keys: dict[str, float], name: str, tmp_path: Path) -> None:
    """Tell a Bamba from a Granite 4, as which llama.cpp knows both, by a scale that it has not."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "granitehybrid")
    for key, value in keys.items():
        writer.add_float32(f"granitehybrid.attention.{key}", value)
    writer.add_tensor("token_embd.weight", np.zeros((2, 2), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert find_recipe(open_checkpoint(tmp_path / "m.gguf")).name == name
