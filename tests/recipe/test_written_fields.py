"""Fields of every recipe, whatever they are: read as they were written, or not written at all."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from maxtool.errors import ConfigurationError
from maxtool.recipe import (
    Recipe,
    computed_tensors,
    find_recipe,
    resolve_config,
    written_keys,
)
from maxtool.recipe.expressions import evaluate, same
from maxtool.recipe.field_codecs import FALCON_BLOCKS
from maxtool.recipe.schema import Dialect, Field
from maxtool.recipe.sentence_transformers import TABLE
from maxtool.weights import Checkpoint, open_checkpoint

DATA = Path(__file__).resolve().parents[1] / "data"
Fields = dict[str, Any]
LAYERS = st.sampled_from([1, 4, 12, 46, 62])
SIZES = st.integers(1, 12) | st.sampled_from([16, 24, 64, 96, 4096, 131072])
DRAWN: dict[str, st.SearchStrategy[Any]] = {
    "int": SIZES,
    "count": st.just(0) | SIZES,
    "float": st.floats(1e-3, 1e3) | st.sampled_from([0.25, 1.0, 10000.0]),
    "bool": st.booleans(),
    "texts": st.lists(st.text(max_size=4), min_size=1, max_size=4, unique=True).map(tuple),
    "bools": st.lists(st.booleans(), min_size=1, max_size=4).map(tuple),
    "counts": st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple),
    "ints": st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
    "floats": st.lists(st.floats(1, 9), min_size=1, max_size=4).map(tuple),
}


# What heads for scores, the tokenizer and files of sentence-transformers say together.
OF_SCORES = ("score_tokens", "n_labels", "scored_by", "labels", "scores")


@cache
def tiny(name: str, dialect: Dialect) -> tuple[Recipe, Checkpoint, Fields]:
    """A tiny checkpoint, what reads it, and the fields."""
    folder = DATA / name
    checkpoint = open_checkpoint(folder if dialect == "hf" else folder / f"{name}-f32.gguf")
    recipe = find_recipe(checkpoint)
    return recipe, checkpoint, resolve_config(recipe, checkpoint).values


def is_measured(item: Field, dialect: Dialect) -> bool:
    """Return whether tensors or files beside say a field, which no written key changes."""
    sources = [source for way in item.spellings.get(dialect, ()) for source in way.sources]
    return item.name in OF_SCORES or any(
        source.kind != "key" or source.text.startswith(TABLE) for source in sources
    )


def is_lost(item: Field, dialect: Dialect, values: Fields) -> bool:
    """Return whether a dialect has no key for a field."""
    ways = (way for way in item.spellings.get(dialect, ()) if way.holds(values))
    return any(way.lost for way in ways)


@st.composite
def changed(draw: st.DrawFn, recipe: Recipe, dialect: Dialect, usual: Fields) -> Fields:
    """The fields of a checkpoint, of which some are others."""
    free = [item for item in recipe.fields.values() if not is_measured(item, dialect)]
    chosen = draw(st.lists(st.sampled_from(free), max_size=5, unique_by=lambda item: item.name))
    values = dict(usual)
    if "n_layers" in values and draw(st.booleans()):
        values["n_layers"] = draw(LAYERS)
        flags = [item for item in recipe.fields.values() if item.type == "flags"]
        chosen = [*chosen, *(item for item in flags if item not in chosen)]
    for item in chosen:
        if item.name != "n_layers":
            values[item.name] = draw(_value(item, values))
    return values


def _value(item: Field, values: Fields) -> st.SearchStrategy[Any]:
    if item.type == "flags":
        size = values["n_layers"]
        flags = st.lists(st.booleans(), min_size=size, max_size=size).map(tuple)
        return st.none() | flags.filter(lambda drawn: not all(drawn))
    if item.type == "str":
        allowed = [each.operands[0] for each in item.allowed]
        ways = [way for ways in item.spellings.values() for way in ways]
        spelled = [text for way in ways for text in (way.values or {}).values()]
        blocks = FALCON_BLOCKS if item.name == "block" else ()
        return st.sampled_from([values[item.name], *(allowed or spelled), *blocks])
    drawn = DRAWN[item.type]
    return st.none() | drawn if item.optional else drawn


def plain(values: Fields) -> Fields:
    """The fields as they are read: where they mean nothing they have one value."""
    implied: Fields = {}
    if "sliding_layers" in values:
        flags = values["sliding_layers"]
        if values["sliding_window"] is None or (flags is not None and not any(flags)):
            implied |= {"sliding_layers": None, "sliding_window": None}
    if values.get("rope_scaling") == "dynamic":
        implied["rope_original_context"] = values["context_length"]
    return values | implied


def is_supported(recipe: Recipe, values: Fields) -> bool:
    """Return whether all fields have values that the recipe allows, and a scaling its factor."""
    if values.get("rope_scaling") == "dynamic" and values["rope_factor"] is None:
        return False
    allowed = ((item.name, item.allowed) for item in recipe.fields.values() if item.allowed)
    return all(
        values[name] is None or values[name] in [evaluate(each, values) for each in known]
        for name, known in allowed
    )


def read_again(checkpoint: Checkpoint, recipe: Recipe, keys: Fields) -> Fields:
    """Read a checkpoint whose keys are others."""
    if checkpoint.format == "gguf":
        return resolve_config(recipe, dataclasses.replace(checkpoint, metadata=keys)).values
    return resolve_config(recipe, dataclasses.replace(checkpoint, config=keys)).values


def alike(found: object, value: object) -> bool:
    """Return whether values are the same; a reciprocal of a float32 may be one bit off."""
    if isinstance(found, float) and isinstance(value, float):
        return same(found, value) or abs(found - value) <= ONE_BIT * abs(value)
    return same(found, value)


ONE_BIT = 2.0**-23
NAMES = sorted(folder.name for folder in DATA.glob("tiny-*") if (folder / "config.json").exists())
COMPUTED = ("tiny-llama3", "tiny-phi3-longrope")
"""Their files have tensors that say fields, whatever the keys."""
CASES: list[tuple[str, Dialect]] = [
    *((name, "hf") for name in NAMES),
    *(
        (name, "gguf")
        for name in NAMES
        if name not in COMPUTED and (DATA / name / f"{name}-f32.gguf").exists()
    ),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "dialect"), CASES)
@given(data=st.data())
def test_fields_are_read_as_they_were_written(
    name: str, dialect: Dialect, data: st.DataObject
) -> None:
    recipe, checkpoint, usual = tiny(name, dialect)
    values = data.draw(changed(recipe, dialect, usual))
    assume(is_supported(recipe, values))
    try:
        keys = written_keys(recipe, dialect, values)
    except ConfigurationError:
        return
    assume(not computed_tensors(recipe.computed[dialect], values))
    found, values = (plain(each) for each in (read_again(checkpoint, recipe, keys), values))
    kept = [item for item in recipe.fields.values() if not is_lost(item, dialect, values)]
    others = [item.name for item in kept if not alike(found[item.name], values[item.name])]
    assert [f"{name} = {found[name]}, not {values[name]}" for name in others] == []
