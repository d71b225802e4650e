"""Flags of a config.json that are null: false, as transformers only asks whether they are true."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maxtool.errors import ConfigurationError
from maxtool.recipe import Recipe, find_recipe, resolve_config
from maxtool.weights import Checkpoint, open_checkpoint
from tests.effort import sampled
from tests.recipe.test_published import PUBLISHED, resolved

# One published model of each recipe, of which each has flags of its own.
MODELS = list({told["recipe"]: name for name, told in reversed(PUBLISHED.items())}.values())
LATENT = "DeepSeek-V3"


def read(checkpoint: Checkpoint, config: dict[str, Any]) -> tuple[Any, ...]:
    """The recipe and the fields of a configuration; of one that is refused, nothing."""
    other = dataclasses.replace(checkpoint, config=config)
    try:
        recipe = find_recipe(other)
        return recipe.name, resolve_config(recipe, other).values
    except ConfigurationError:
        return ()


def flags(recipe: Recipe, config: dict[str, Any]) -> Iterator[str]:
    """The keys that are true or false in a configuration, or to its recipe."""
    yield from (key for key, value in config.items() if type(value) is bool)
    for key, allowed in recipe.expect["hf"].items():
        if "." not in key and {*map(type, allowed)} == {bool}:
            yield key


@pytest.mark.parametrize("name", sampled(MODELS, LATENT, share=4))
def test_a_null_flag_is_read_as_false(name: str, tmp_path: Path) -> None:
    told = PUBLISHED[name]
    recipe, _ = resolved(tmp_path, told["config"], told.get("bytes"), told.get("floats"))
    checkpoint = open_checkpoint(tmp_path)
    for key in sorted({*flags(recipe, told["config"])}):
        null, false = (read(checkpoint, told["config"] | {key: value}) for value in (None, False))
        assert null == false, key
