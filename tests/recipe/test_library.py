"""Recipes of installed packages."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from maxtool.cli.app import app
from maxtool.errors import MissingFile
from maxtool.recipe import find_recipe, hidden, load_recipe, plan, recipe_names
from maxtool.weights import open_checkpoint

DATA = Path(__file__).resolve().parents[1] / "data"
MINE = """
schema = 2
name = "fable"
extends = "llama"
[match.hf]
model_type = ["fable"]
[match.gguf]
"general.architecture" = ["fable"]
[constants.hf]
model_type = "fable"
[constants.gguf]
"general.architecture" = "fable"
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def install(site: Path, package: str, *names: str, text: str = MINE, lies: bool = False) -> None:
    """Install a package that brings recipes, as pip would lay it out."""
    code = site / package
    code.mkdir()
    (code / "__init__.py").write_text("raise RuntimeError('a recipe needs no code of its package')")
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {package}" for name in names]
    (info / "entry_points.txt").write_text("\n".join(["[maxtool.recipes]", *lines, ""]))
    for name in names:
        if not lies:
            (code / f"{name}.toml").write_text(text)


def test_an_installed_recipe_is_one_of_them(site: Path, tmp_path: Path) -> None:
    install(site, "fables", "fable")
    assert recipe_names()[-1] == "fable"
    assert load_recipe("fable").file == site / "fables" / "fable.toml"
    folder = tmp_path / "model"
    folder.mkdir()
    config = json.loads((DATA / "tiny-llama" / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "fable"}))
    weights = (DATA / "tiny-llama" / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights)
    checkpoint = open_checkpoint(folder)
    recipe = find_recipe(checkpoint)
    assert recipe.name == "fable"
    plan(recipe, checkpoint).check()
    assert "fables" not in sys.modules


def test_maxtools_own_come_first(site: Path) -> None:
    install(site, "clash", "llama", text="not = toml = at all")
    assert recipe_names().count("llama") == 1
    assert load_recipe("llama").name == "llama"
    assert list(hidden()) == ["the recipe 'llama' of clash is hidden by that of maxtool"]
    result = CliRunner().invoke(app, ["recipes", "list"])
    assert result.exit_code == 0
    assert "hidden by that of maxtool" in result.stderr


def test_of_two_packages_the_first_name_wins(site: Path) -> None:
    install(site, "beta", "fable", text="")
    install(site, "alpha", "fable")
    assert load_recipe("fable").file.parent.name == "alpha"
    assert list(hidden()) == ["the recipe 'fable' of beta is hidden by that of alpha"]


def test_a_package_without_its_file(site: Path) -> None:
    install(site, "empty", "fable", lies=True)
    with pytest.raises(MissingFile, match="empty names a recipe 'fable' and does not hold it"):
        load_recipe("fable")


def test_nothing_is_hidden_here() -> None:
    assert not list(hidden())
