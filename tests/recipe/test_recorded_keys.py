"""Fields and keys of every tiny checkpoint, as they were recorded: a change of them is on purpose.

``python -m tests.recipe.test_recorded_keys`` records them anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from maxtool.errors import ConfigurationError
from maxtool.recipe import (
    Recipe,
    computed_tensors,
    find_recipe,
    resolve_config,
    written_keys,
    written_notes,
)
from maxtool.recipe.schema import DIALECTS, Dialect
from maxtool.weights import open_checkpoint

DATA = Path(__file__).resolve().parents[1] / "data"
RECORDED = DATA / "recipes" / "recorded_keys.json"
CHECKPOINTS = sorted(folder.name for folder in DATA.glob("tiny-*"))


def said(name: str) -> dict[str, Any]:
    """The fields of a checkpoint, and what each dialect says of them, as JSON has it."""
    checkpoint = open_checkpoint(DATA / name)
    recipe = find_recipe(checkpoint)
    fields = resolve_config(recipe, checkpoint).values
    written = {dialect: _written(recipe, dialect, fields) for dialect in DIALECTS}
    made: dict[str, Any] = json.loads(json.dumps({"fields": fields, **written}))
    return made


def _written(recipe: Recipe, dialect: Dialect, fields: dict[str, Any]) -> Any:
    """Keys in the order in which they are written, notes, and names of computed tensors."""
    try:
        keys = written_keys(recipe, dialect, fields)
    except ConfigurationError as error:
        return list(error.problems)
    tensors = computed_tensors(recipe.computed[dialect], fields)
    return [list(keys.items()), written_notes(recipe, dialect, fields), list(tensors)]


def test_all_are_recorded() -> None:
    assert list(json.loads(RECORDED.read_text())) == CHECKPOINTS


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_as_recorded(name: str) -> None:
    assert said(name) == json.loads(RECORDED.read_text())[name]


if __name__ == "__main__":
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(said(name))}" for name in CHECKPOINTS)
    RECORDED.write_text(f"{{\n{rows}\n}}\n")
