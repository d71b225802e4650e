"""Alternative spellings of tensor names, and names that a dialect cannot express."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from maxtool.conversion.engine import convert, prepare
from maxtool.conversion.request import Request
from maxtool.errors import ConfigurationError, ModelMismatch
from maxtool.recipe import load_recipe, plan, resolve_config, written_keys, written_notes
from maxtool.recipe.name_patterns import Pattern, Rename, clashes, renamed
from maxtool.weights import open_checkpoint
from tests.recipe.conftest import DATA, Edit

SEGMENTS = st.sampled_from(["bert", "layer", "0", "17", "LayerNorm", "gamma", "b*rt", "x"])
NAMES = st.lists(SEGMENTS, min_size=1, max_size=5).map(".".join)


def rename(old: str, new: str) -> Rename:
    return Rename(Pattern(old), Pattern(new))


@pytest.mark.parametrize(
    ("old", "new", "name", "expected"),
    [
        ("bert.*", "*", "bert.pooler.dense.weight", "pooler.dense.weight"),
        ("bert.*", "*", "roberta.pooler.weight", "roberta.pooler.weight"),
        ("bert.*", "*", "bert", "bert"),
        ("bert.*", "*", "bert.bert.x", "bert.x"),
        ("*.LayerNorm.gamma", "*.LayerNorm.weight", "a.0.LayerNorm.gamma", "a.0.LayerNorm.weight"),
        ("*.LayerNorm.gamma", "*.LayerNorm.weight", "LayerNorm.gamma", "LayerNorm.gamma"),
        ("h.{i}.*.{j}", "{j}.{i}.*", "h.3.a.b.14", "14.3.a.b"),
        ("h.{i}.a", "h.a.{i}", "h.x.a", "h.x.a"),
        ("old.name", "new", "old.name", "new"),
    ],
)
def test_a_name_in_another_spelling(old: str, new: str, name: str, expected: str) -> None:
    assert rename(old, new).apply(name) == expected


@given(NAMES)
def test_a_prefix_is_taken_off_and_nothing_else(name: str) -> None:
    for prefix in ("bert", "b", "layer"):
        found = rename(f"{prefix}.*", "*").apply(name)
        assert found == (name.removeprefix(f"{prefix}.") or name)


@given(st.dictionaries(NAMES, st.integers(), max_size=8))
def test_a_tensor_is_found_once_or_is_a_clash(items: dict[str, int]) -> None:
    rules = [rename("bert.*", "*"), rename("*.gamma", "*.weight")]
    found = renamed(rules, items)
    assert len(found) + len(list(clashes(rules, items))) == len(items)
    assert set(found.values()) <= set(items.values())


DROP = 'drop = ["*.rotary_emb.inv_freq"]'
PREFIX = (DROP, 'rename = { "old.*" = "model.*" }')


def test_a_checkpoint_in_either_spelling(
    edited: Edit, written: Callable[..., Path], tmp_path: Path
) -> None:
    names = list(load_file(DATA / "tiny-llama" / "model.safetensors"))
    weights = load_file(DATA / "tiny-llama" / "model.safetensors")
    old = {n.replace("model.", "old.", 1): weights[n] for n in names if n.startswith("model.")}
    folder = edited(tensors={**dict.fromkeys([n for n in names if n.startswith("model.")]), **old})
    recipe = load_recipe(str(written(PREFIX)))
    planned = plan(recipe, open_checkpoint(folder))
    planned.check()
    np.testing.assert_array_equal(planned.read("norm.weight").data, weights["model.norm.weight"])
    request = Request(folder, tmp_path / "out", recipe=str(recipe.file))
    convert(prepare(request))
    assert set(load_file(tmp_path / "out" / "model.safetensors")) == set(names)


def test_one_tensor_in_two_spellings(edited: Edit, written: Callable[..., Path]) -> None:
    folder = edited(tensors={"old.norm.weight": np.ones(40, np.float32)})
    planned = plan(load_recipe(str(written(PREFIX))), open_checkpoint(folder))
    with pytest.raises(ModelMismatch, match=r"norm\.weight is .*norm\.weight again, in another"):
        planned.check()


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ('{ "a.*" = "b" }', r"needs one '\*' on both sides, or on neither"),
        ('{ "a.*.*" = "*.*" }', r"needs one '\*' on both sides"),
        ('{ "a.b" = "a.{i}" }', "i is not on the left side"),
        ('{ "a..b" = "a" }', "an empty segment"),
        ('{ "a" = 3 }', "needs a text"),
        ("3", "needs a table"),
    ],
)
def test_a_rename_that_cannot_be(written: Callable[..., Path], rule: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        load_recipe(str(written((DROP, f"rename = {rule}"))))


NORM = '"norm.weight" = "output_norm.weight"'
NAME = "model.norm.weight"
WINDOW = (
    'gguf = { keys = ["{arch}.attention.sliding_window"], '
    'note = "llama.cpp\'s own converter leaves it out" }',
    'gguf = { lost = "there is no key" }',
)
ACT = [
    ('default = "silu"', 'gguf = { keys = ["{arch}.act"], values = { "3" = "silu" } }'),
    ('"{arch}.rope.dimension_count",\n]', '"{arch}.rope.dimension_count",\n"{arch}.act",\n]'),
]


def test_what_a_dialect_cannot_say_is_left_out_with_a_note(
    edited: Edit, written: Callable[..., Path], tmp_path: Path
) -> None:
    lost = written((NORM, '"norm.weight" = { lost = "no place for it" }'))
    made = prepare(Request(edited(), tmp_path / "out.gguf", recipe=str(lost)))
    assert "norm.weight is not written: no place for it" in made.notes
    assert "output_norm.weight" not in {spec.name for spec in made.specs}
    convert(made)
    planned = plan(load_recipe(str(lost)), open_checkpoint(tmp_path / "out.gguf"))
    assert planned.missing == ["norm.weight (no place for it)"]


def test_what_a_dialect_takes_for_zero_is_left_out_where_it_is(
    edited: Edit, written: Callable[..., Path], tmp_path: Path
) -> None:
    zero = str(written((NORM, '"norm.weight" = { zero = "no place for it" }')))
    folder, output = edited(), tmp_path / "out.gguf"
    with pytest.raises(ConfigurationError) as caught:
        prepare(Request(folder, output, recipe=zero))
    assert list(caught.value.problems) == ["norm.weight is not 0, and no place for it"]
    file = folder / "model.safetensors"
    tensors = load_file(file)
    save_file(tensors | {NAME: np.zeros_like(tensors[NAME])}, file)
    made = prepare(Request(folder, output, recipe=zero))
    assert "norm.weight is not written: no place for it" in made.notes


def test_from_and_lost_exclude_each_other(written: Callable[..., Path]) -> None:
    both = '"norm.weight" = { from = "output_norm.weight", lost = "no place" }'
    with pytest.raises(ConfigurationError, match="'from' and 'lost' exclude each other"):
        load_recipe(str(written((NORM, both))))


def test_a_field_that_a_dialect_cannot_say(edited: Edit, written: Callable[..., Path]) -> None:
    order = ('  "{arch}.attention.sliding_window",\n', "")
    recipe = load_recipe(str(written(WINDOW, order)))
    values = resolve_config(recipe, open_checkpoint(edited())).values
    keys = written_keys(recipe, "gguf", values | {"sliding_window": 7})
    assert not any("window" in key for key in keys)
    assert written_notes(recipe, "gguf", values) == []
    notes = written_notes(recipe, "gguf", values | {"sliding_window": 7})
    assert notes == ["sliding_window = 7 is not written: there is no key"]


def test_a_value_that_is_a_number(
    edited: Edit, written: Callable[..., Path], tmp_path: Path
) -> None:
    recipe = load_recipe(str(written(*ACT)))
    convert(prepare(Request(edited(), tmp_path / "out.gguf", recipe=str(recipe.file))))
    checkpoint = open_checkpoint(tmp_path / "out.gguf")
    assert checkpoint.metadata["llama.act"] == 3
    assert resolve_config(recipe, checkpoint).values["hidden_act"] == "silu"
