"""Checks of a recipe's formulas: operands of the kind that each takes, results that fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from maxtool.recipe.expressions import Expression
from maxtool.recipe.formulas import FORMULAS
from maxtool.recipe.schema import Field, Recipe

# The kind of value that a field of each type is; of the others a formula takes none.
KINDS: Mapping[str, str] = {"int": "number", "count": "number", "float": "number", "flags": "flags"}
NULL = "null"
OTHER = "other"


def problems(recipe: Recipe) -> Iterator[str]:
    """A line for each operand or result of the wrong kind."""
    for field in recipe.fields.values():
        found = (*_layers(field, recipe), *_conversions(field, recipe), *_results(field, recipe))
        yield from (f"config.{field.name}: {problem}" for problem in dict.fromkeys(found))


def _layers(field: Field, recipe: Recipe) -> Iterator[str]:
    """Flags are one for each layer: how many there are must be known."""
    layers = recipe.fields.get("n_layers")
    if field.type != "flags" or layers is None:
        return
    if layers.type != "int" or layers.optional or layers.beside is not None:
        yield "flags need an n_layers of type int that is never null"


def _conversions(field: Field, recipe: Recipe) -> Iterator[str]:
    for ways in field.spellings.values():
        converted = [way.convert[1] for way in ways if way.convert]
        if converted and KINDS.get(field.type) != "number":
            yield f"as: a field of type {field.type} is not a number"
        for name in converted:
            if name in recipe.fields and _of_field(name, recipe) != "number":
                yield f"as: {name!r} is not a number"


def _results(field: Field, recipe: Recipe) -> Iterator[str]:
    for expression in _expressions(field):
        yield from _misfits(expression, recipe)
        if field.type != "flags" and "flags" in _kinds(expression, recipe):
            yield f"a formula gives flags, and the field is of type {field.type}"


def _expressions(field: Field) -> Iterator[Expression]:
    ways = [way for ways in field.spellings.values() for way in ways]
    told = [e for way in ways for e in (way.says, way.omit, way.default, way.null)]
    yield from (one for one in (field.default, *field.allowed, *told) if one is not None)


def _misfits(expression: Expression, recipe: Recipe) -> Iterator[str]:
    for inner in expression.inner:
        yield from _misfits(inner, recipe)
    row = FORMULAS.get(expression.op)
    if row is None:
        return
    for operand in expression.operands:
        if not _kinds(operand, recipe) <= {row.takes, NULL}:
            yield f"{expression.op} takes {row.takes}{'s' * (row.takes == 'number')} only"
    for name in row.reads:
        if name in recipe.fields and _of_field(name, recipe) != "number":
            yield f"{expression.op} needs a number as {name!r}"


def _kinds(expression: Expression, recipe: Recipe) -> set[str]:
    """The kinds of value that an expression may stand for."""
    if expression.op == "value":
        return {_of_value(expression.operands[0])}
    if expression.op == "field":
        return {_of_field(expression.operands[0], recipe)}
    if expression.op == "by":
        return {kind for inner in expression.inner for kind in _kinds(inner, recipe)}
    return {FORMULAS[expression.op].gives}


def _of_value(value: object) -> str:
    if value is None:
        return NULL
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else OTHER


def _of_field(name: str, recipe: Recipe) -> str:
    """The kind of a field; one that the recipe has not is reported elsewhere."""
    return KINDS.get(recipe.fields[name].type, OTHER) if name in recipe.fields else NULL
