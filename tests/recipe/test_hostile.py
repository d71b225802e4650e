"""Recipes and configurations that would cost much more than their bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maxtool.errors import ConfigurationError
from maxtool.recipe import find_recipe, load_recipe, resolve_config
from maxtool.weights import open_checkpoint
from tests.machine import Stopwatch

MOST_SECONDS = 1
LONG_KEY = ".".join("a" * 450)
RECIPES = {
    "nested lists": ("x = " + "[\n" * 50_000, "nested too deeply"),
    "nested tables": ("x = " + "{a=" * 300 + "1", "not TOML|nested too deeply"),
    "a long line": ("x = " + "9" * 5000, "a line of 5004 characters"),
    "a long key": (".".join("a" * 50_000) + " = 1", "a line of"),
    "many long keys": ("".join(f"{LONG_KEY}.b{i} = 1\n" for i in range(140)), "wrong"),
    "a large file": ("#\n" * 100_000, "200000 bytes"),
    "no text": ("\udcff", "not TOML"),
}


@pytest.mark.parametrize("name", RECIPES)
def test_recipes(tmp_path: Path, name: str) -> None:
    text, message = RECIPES[name]
    (tmp_path / "x.toml").write_bytes(text.encode(errors="surrogateescape"))
    with Stopwatch() as watch, pytest.raises(ConfigurationError, match=message):
        load_recipe(str(tmp_path / "x.toml"))
    assert watch.seconds < MOST_SECONDS


def nested(depth: int, inside: Any) -> Any:
    for _ in range(depth):
        inside = {"a": inside}
    return inside


CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "a float beyond all": ({"rms_norm_eps": 10**400}, "is not a positive number"),
    "a key of many dots": ({".".join("a" * 50_000): 1}, "is unknown"),
    "nested deeply": ({"a": nested(900, 1)}, "is unknown"),
    "whole and nested deeply": ({"quantization_config": nested(900, 1)}, "never ignored"),
    "many values nested deeply": ({"a": nested(300, {f"k{i}": 1 for i in range(9999)})}, "unknown"),
    "a long key above many": ({"a" * 50_000: {f"k{i}": 1 for i in range(9999)}}, "unknown"),
    "many keys": ({f"k{i}": 1 for i in range(50_000)}, "is unknown"),
    "many keys without a value": ({"x": 1} | {f"k{i}": None for i in range(20_000)}, "is unknown"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_configurations(edited: Callable[..., Path], name: str) -> None:
    changes, message = CONFIGS[name]
    checkpoint = open_checkpoint(edited(config=changes))
    recipe = find_recipe(checkpoint)
    with Stopwatch() as watch, pytest.raises(ConfigurationError, match=message):
        resolve_config(recipe, checkpoint)
    assert watch.seconds < MOST_SECONDS
