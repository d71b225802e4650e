"""Files of recipes: those that ship with maxtool, and those of installed packages.

A package brings a recipe by an entry point of the group ``maxtool.recipes``, whose name is the
recipe's and whose value is the package that holds ``NAME.toml``::

    [project.entry-points."maxtool.recipes"]
    rwkv = "maxtool_rwkv"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from maxtool.errors import MissingFile

PACKAGE = Path(__file__).resolve().parent.parent
# A name that begins so does not describe a model: others extend it.
BASE = "_"
RECIPE_SUFFIX = ".toml"
# In a wheel the recipes lie inside the package, in a checkout beside it.
FOLDERS = (PACKAGE / "recipes", PACKAGE.parent / "recipes")
GROUP = "maxtool.recipes"


def recipe_names() -> list[str]:
    """The names of the recipes that ship with maxtool, then of those that packages bring."""
    shipped = [name for name in _shipped() if not name.startswith(BASE)]
    return [*shipped, *sorted({point.name for point in _points()} - {*shipped})]


def recipe_file(name: str) -> Path | None:
    """Find the recipe of a name, None if no recipe has it. maxtool's own come first.

    Packages are looked through only for a name that is not maxtool's own.
    """
    shipped = _shipped()
    if name in shipped:
        return shipped[name]
    return next((_held(point) for point in _points() if point.name == name), None)


def is_shipped(file: Path) -> bool:
    """Return whether a recipe's file is one of maxtool's own."""
    return file in _shipped().values()


def hidden() -> Iterator[str]:
    """List recipes that are never used, because another has the name."""
    taken = dict.fromkeys(_shipped(), "maxtool")
    for point in _points():
        owner = taken.setdefault(point.name, _package(point))
        if owner != _package(point):
            yield f"the recipe {point.name!r} of {_package(point)} is hidden by that of {owner}"


def _shipped() -> Mapping[str, Path]:
    for folder in FOLDERS:
        if folder.is_dir():
            return _held_in(folder)
    raise MissingFile("maxtool's recipes are missing", file=FOLDERS[0], hint="reinstall maxtool")


@cache
def _held_in(folder: Path) -> Mapping[str, Path]:
    """The recipes of a folder, which is listed once: each recipe's bases are asked for by name."""
    return {file.stem: file for file in sorted(folder.glob(f"*{RECIPE_SUFFIX}"))}


def _points() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP), key=lambda point: (point.name, _package(point)))


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.module


def _held(point: EntryPoint) -> Path:
    """The file that an entry point stands for. The package is found, and not imported."""
    try:
        spec = find_spec(point.module)
    except ImportError:
        spec = None
    folders = (spec.submodule_search_locations if spec else None) or ()
    files = [Path(folder) / f"{point.name}{RECIPE_SUFFIX}" for folder in folders]
    for file in files:
        if file.is_file():
            return file
    raise MissingFile(
        f"{_package(point)} names a recipe {point.name!r} and does not hold it",
        file=files[0] if files else None,
        hint=f"mend or uninstall {_package(point)}",
    )
