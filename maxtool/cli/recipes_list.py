"""``maxtool recipes list``: the recipes there are, and what each recognises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maxtool.cli.output import Output

if TYPE_CHECKING:
    from maxtool.recipe import Recipe
    from maxtool.recipe.schema import Source

SCHEMA = "maxtool.recipes-list/1"


def recipes_list(out: Output) -> None:
    """List the recipes: name, architecture, and what of a model they recognise."""
    from maxtool.recipe import hidden, load_recipe, recipe_names

    recipes = [load_recipe(name) for name in recipe_names()]
    for line in hidden():
        out.warn(line)
    if out.json_mode:
        out.data(SCHEMA, {"recipes": [_as_json(recipe) for recipe in recipes]})
        return
    from maxtool.cli.tables import draw_names

    columns = [(name, "left") for name in ("Recipe", "Architecture", "Hugging Face", "GGUF")]
    draw_names(out, columns, [_row(recipe) for recipe in recipes])


def _row(recipe: Recipe) -> list[str]:
    from maxtool.recipe.schema import KINDS

    kinds = [recipe.match[dialect].values.get(key, ()) for dialect, key in KINDS.items()]
    return [recipe.name, recipe.architecture, *(", ".join(map(str, names)) for names in kinds)]


def _as_json(recipe: Recipe) -> dict[str, object]:
    return {
        "name": recipe.name,
        "file": str(recipe.file),
        "architecture": recipe.architecture,
        "match": {
            dialect: {
                "values": dict(match.values),
                "requires": [_required(source) for source in match.requires],
            }
            for dialect, match in recipe.match.items()
        },
    }


def _required(source: Source) -> str | dict[str, str]:
    """Return a key by its name, a tensor as a recipe has it."""
    return source.text if source.kind == "key" else {source.kind: source.text}
