"""Variants: what is inherited, what is replaced, what is taken away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxtool.errors import ConfigurationError
from maxtool.recipe import load_recipe, recipe_names
from maxtool.recipe.extend import DEPTHS, extended

HEAD = 'schema = 2\nname = "mine"\nextends = "llama"\n'


def variant(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(HEAD + text)
    return file


def test_what_is_not_said_is_inherited(tmp_path: Path) -> None:
    base, mine = load_recipe("llama"), load_recipe(str(variant(tmp_path, "")))
    assert mine.name == "mine"
    assert (mine.fields, mine.rules, mine.order) == (base.fields, base.rules, base.order)
    assert list(mine.fields) == list(base.fields)


def test_a_field_is_replaced_as_a_whole(tmp_path: Path) -> None:
    field = 'norm_eps = { type = "float", hf = "eps", default = 1e-3 }'
    mine = load_recipe(str(variant(tmp_path, f"[config]\n{field}\n")))
    assert mine.fields["norm_eps"].spellings.keys() == {"hf"}
    assert [key for way in mine.fields["norm_eps"].spellings["hf"] for key in way.keys] == ["eps"]


def test_false_takes_an_entry_away(tmp_path: Path) -> None:
    name = '"layers.{layer}.attn.o.bias" = false\n'
    mine = load_recipe(str(variant(tmp_path, f"[weights.hf]\n{name}[weights.gguf]\n{name}")))
    for dialect in ("hf", "gguf"):
        targets = [rule.target.text for rule in mine.rules[dialect].rules]
        assert "layers.{layer}.attn.o.bias" not in targets
        assert "layers.{layer}.attn.q.bias" in targets


def test_a_dialect_is_taken_away(tmp_path: Path) -> None:
    """A model that GGUF has no form of says so of the rules."""
    mine = load_recipe(str(variant(tmp_path, "[weights]\ngguf = false\n")))
    assert (mine.knows("hf"), mine.knows("gguf")) == (True, False)
    assert not any("gguf" in field.spellings for field in mine.fields.values())
    assert not mine.match["gguf"].values
    assert mine.rules["hf"] == load_recipe("llama").rules["hf"]


def test_false_is_a_value_elsewhere(tmp_path: Path) -> None:
    mine = load_recipe(str(variant(tmp_path, "[expect.hf]\npretraining_tp = false\nnew = 1\n")))
    assert mine.expect["hf"]["pretraining_tp"] == (False,)
    assert mine.expect["hf"]["new"] == (1,)
    assert "rope_interleaved" in mine.expect["hf"]


@pytest.mark.parametrize(
    ("extends", "message"),
    [
        ('"lama"', "extends: there is no recipe 'lama' .known: afmoe, apertus, arcee, bamba, bart"),
        ('"../llama"', "there is no recipe"),
        ("3", "needs the name of a recipe, found 3"),
        ("[]", "needs the name of a recipe"),
        ('["llama", 3]', "needs the name of a recipe, found 3"),
    ],
)
def test_bad_bases(tmp_path: Path, extends: str, message: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'schema = 2\nname = "mine"\nextends = {extends}\n')
    with pytest.raises(ConfigurationError, match=message):
        load_recipe(str(file))


def test_circles_end() -> None:
    recipes = {"a": {"extends": "b"}, "b": {"extends": "a"}}
    with pytest.raises(ValueError, match="more than 16 recipes that extend each other"):
        extended(recipes["a"], recipes.__getitem__)


def test_of_several_the_later_wins() -> None:
    recipes: dict[str, dict[str, Any]] = {
        "c": {"extends": ["a", "b"], "config": {"z": 3}},
        "b": {"config": {"x": {"default": 2}, "y": False}},
        "a": {"config": {"x": {"default": 1}, "y": {"default": 1}, "z": 1}, "name": 1},
    }
    expected = {"x": {"default": 2}, "z": 3}
    assert extended(recipes["c"], recipes.__getitem__) == {"config": expected, "name": 1}


def test_circles_of_several_end() -> None:
    recipes = {"a": {"extends": ["b", "b", "b"]}, "b": {"extends": ["a", "a", "a"]}}
    with pytest.raises(ValueError, match="more than 16 recipes"):
        extended(recipes["a"], recipes.__getitem__)


def test_the_nearest_wins() -> None:
    recipes: dict[str, dict[str, Any]] = {
        "c": {"extends": "b", "config": {"x": {"type": "int"}}},
        "b": {"extends": "a", "config": {"x": {"default": 2}, "y": {"default": 2}}},
        "a": {"config": {"x": {"default": 1}, "y": {"default": 1}, "z": {"default": 1}}, "name": 1},
    }
    expected = {"x": {"type": "int"}, "y": {"default": 2}, "z": {"default": 1}}
    assert extended(recipes["c"], recipes.__getitem__) == {"config": expected, "name": 1}


TABLES = st.recursive(
    st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)
SECTIONS = st.dictionaries(st.sampled_from([*DEPTHS, "name"]), TABLES, max_size=4)


@given(base=SECTIONS, own=SECTIONS)
def test_a_variant_says_what_it_says(base: dict[str, Any], own: dict[str, Any]) -> None:
    """Every section of either is there, own values win, and neither is changed."""
    before = repr((base, own))
    joined = extended({**own, "extends": "base"}, lambda _name: base)
    assert set(joined) == {*base, *own}
    assert all(joined[key] == base[key] for key in set(base) - set(own))
    for key in own:
        if key in DEPTHS and isinstance(base.get(key), dict) and isinstance(own[key], dict):
            assert set(joined[key]) == {*base[key], *own[key]}
        else:
            assert joined[key] == own[key]
    assert repr((base, own)) == before


@pytest.mark.parametrize("name", sorted({*recipe_names()} - {"llama", "bert"}))
def test_shipped_variants_are_short(name: str) -> None:
    file = load_recipe(name).file
    text = file.read_text()
    assert "extends =" not in text or len(text.splitlines()) <= 100
