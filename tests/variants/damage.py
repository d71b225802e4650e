"""Damaged recipes, loaded, extended and recognised as if their files held the damage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from maxtool.recipe import load, recipe_names
from maxtool.recipe.brackets import written_out
from maxtool.recipe.extend import bases
from maxtool.recipe.recipe_files import recipe_file
from tests.variants.mutations import Mutation, Table, mutations, swaps

AS_IT_STANDS = load._toml


@cache
def tables(name: str) -> Table:
    """A recipe's own tables."""
    file = recipe_file(name)
    assert file is not None
    return dict(load._toml(file))


@cache
def damages(name: str) -> list[tuple[Mutation, Table]]:
    """All damage to a recipe, each with what the file then holds."""
    whole = tables(name)
    result = [(each, each.apply(whole)) for each in mutations(whole)]
    apart = written_out(whole)
    return result + [(each, each.apply(apart)) for each in swaps(apart)]


@cache
def ancestors(name: str) -> list[str]:
    """A recipe and those that it extends."""
    further = [each for base in bases(tables(name)) for each in ancestors(base)]
    return [*dict.fromkeys([name, *further])]


def heirs(name: str) -> list[str]:
    """The recipes of models that a recipe is part of, itself first."""
    return sorted(
        (each for each in recipe_names() if name in ancestors(each)),
        key=lambda each: len(ancestors(each)),
    )


def forget() -> None:
    """Let recipes be read anew."""
    load._kept.cache_clear()
    load._matches.cache_clear()


@contextmanager
def whole() -> Iterator[None]:
    """Have all recipes as they stand inside this block, within damage too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "_toml", AS_IT_STANDS)
        forget()
        try:
            yield
        finally:
            forget()


@contextmanager
def damaged(name: str, changed: Table) -> Iterator[None]:
    """Write other tables to the recipe's file inside this block."""
    file, usual = recipe_file(name), load._toml
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "_toml", lambda asked: changed if asked == file else usual(asked))
        forget()
        try:
            yield
        finally:
            forget()
