"""Checks that formulas and codecs look at fields whose values they take."""

from __future__ import annotations

from collections.abc import Iterator

from maxtool.recipe.codec_type import (
    COUNTS_OR_NULL,
    FLAGS_OR_NULL,
    INTEGERS,
    NUMBER,
    NUMBER_OR_NULL,
    SIZES_OR_NULL,
)
from maxtool.recipe.codecs import CODECS
from maxtool.recipe.schema import Field, Recipe

NUMBERS = ("int", "count", "float")
# The types of fields that are what a codec needs.
NEEDED = {
    NUMBER: NUMBERS,
    NUMBER_OR_NULL: NUMBERS,
    FLAGS_OR_NULL: ("flags",),
    INTEGERS: ("ints",),
    SIZES_OR_NULL: ("ints",),
    COUNTS_OR_NULL: ("counts",),
}
# Types of fields that a codec may write with before they are known where it reads.
LATE = ("str", "flags", "int", "ints")


def problems(recipe: Recipe) -> Iterator[str]:
    """A line for each field of the wrong type."""
    for field in recipe.fields.values():
        lines = (*_layers(field, recipe), *_codecs(field, recipe), *_formulas(field, recipe))
        yield from (f"config.{field.name}: {problem}" for problem in dict.fromkeys(lines))


def _layers(field: Field, recipe: Recipe) -> Iterator[str]:
    """Flags are one for each layer: how many there are must be known."""
    layers = recipe.fields.get("n_layers")
    if field.type == "flags" and layers is not None and (layers.type != "int" or layers.optional):
        yield "flags need an n_layers of type int that is never null"


def _codecs(field: Field, recipe: Recipe) -> Iterator[str]:
    for way in (way for way in field.ways if way.codec):
        codec = CODECS[way.codec]
        if field.type not in codec.types:
            yield f"the codec {way.codec} is for {' and '.join(codec.types)} fields only"
        for name, needed in codec.needs.items():
            if name in recipe.fields and recipe.fields[name].type not in NEEDED[needed]:
                yield f"the codec {way.codec} needs {needed} as {name!r}"
        for name in codec.writes_with:
            if name not in recipe.fields or recipe.fields[name].type not in LATE:
                yield f"the codec {way.codec} needs a text, flags or sizes as {name!r}"


def _formulas(field: Field, recipe: Recipe) -> Iterator[str]:
    spelled = (formula for way in field.ways for formula in (way.omit, way.default))
    for formula in (field.default, *field.allowed, *spelled):
        if formula is not None and formula.op not in ("value", "field"):
            for name in formula.fields():
                if name in recipe.fields and recipe.fields[name].type not in NUMBERS:
                    yield f"{formula.op} takes numbers only, and {name!r} is not a number"
