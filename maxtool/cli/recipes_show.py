"""``maxtool recipes show``: one recipe, with all that it inherits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maxtool.cli import options
from maxtool.cli.output import Output

if TYPE_CHECKING:
    from maxtool.cli.tables import Column
    from maxtool.recipe import Dialect, Recipe
    from maxtool.recipe.rule import Rule
    from maxtool.recipe.schema import Field

SCHEMA = "maxtool.recipes-show/1"
DIALECTS: dict[Dialect, str] = {"hf": "Hugging Face", "gguf": "GGUF"}


def recipes_show(out: Output, recipe: options.NamedRecipe) -> None:
    """Show a recipe: where each dialect keeps the configuration and the tensors."""
    from maxtool.recipe import load_recipe

    shown = load_recipe(options.local_recipe(recipe))
    if out.json_mode:
        out.data(SCHEMA, _as_json(shown))
        return
    from maxtool.cli.tables import write

    out.text(f"{shown.name}: {shown.architecture}, {shown.file}")
    for dialect, title in DIALECTS.items():
        write(out, _columns("Field", "Type", title), _field_rows(shown, dialect), folds=2)
    for dialect, title in DIALECTS.items():
        write(out, _columns("Parameter", title), _rule_rows(shown, dialect), folds=1)


def _columns(*headers: str) -> list[Column]:
    return [(header, "left") for header in headers]


def _field_rows(recipe: Recipe, dialect: Dialect) -> list[list[str]]:
    return [
        [field.name, field.type + (" or null" if field.optional else ""), _keys(field, dialect)]
        for field in recipe.fields.values()
    ]


def _keys(field: Field, dialect: Dialect) -> str:
    return ", ".join(_known(field, dialect)) or "-"


def _known(field: Field, dialect: Dialect) -> list[str]:
    """The keys and tensors a field is read from, each once."""
    ways = field.spellings.get(dialect, ())
    return list(dict.fromkeys(source.text for way in ways for source in way.sources))


def _rule_rows(recipe: Recipe, dialect: Dialect) -> list[list[str]]:
    return [[rule.target.text, _made(rule)] for rule in recipe.rules[dialect].rules]


def _made(rule: Rule) -> str:
    sources = " + ".join(source.text for source in rule.sources) or f"none: {rule.lost}"
    return ", ".join([sources, *(step.op for step in rule.steps)])


def _as_json(recipe: Recipe) -> dict[str, object]:
    return {
        "name": recipe.name,
        "file": str(recipe.file),
        "architecture": recipe.architecture,
        "config": {name: _field_json(field) for name, field in recipe.fields.items()},
        "weights": {dialect: _rules_json(rules.rules) for dialect, rules in recipe.rules.items()},
        "entries": {name: dict(inputs) for name, inputs in recipe.entries.items()},
        "check": {
            dtype: {"rtol": tolerance.rtol, "atol": tolerance.atol}
            for dtype, tolerance in recipe.check.items()
        },
    }


def _field_json(field: Field) -> dict[str, object]:
    return {
        "type": field.type,
        "optional": field.optional,
        "allowed": [
            condition.operands[0] for condition in field.allowed if condition.op == "value"
        ],
        **{dialect: _known(field, dialect) for dialect in field.spellings},
    }


def _rules_json(rules: tuple[Rule, ...]) -> dict[str, list[dict[str, object]]]:
    """The ways in which each parameter is made: the first that applies holds."""
    ways: dict[str, list[dict[str, object]]] = {}
    for rule in rules:
        ways.setdefault(rule.target.text, []).append(_rule_json(rule))
    return ways


def _rule_json(rule: Rule) -> dict[str, object]:
    return {
        "from": [source.text for source in rule.sources],
        "operations": [step.op for step in rule.steps],
        "tie": rule.tie,
        "when": dict(rule.when),
    }
