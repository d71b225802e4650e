"""Layers that a configuration lists, by their kinds or by their numbers, as a flag for each."""

from __future__ import annotations

from collections.abc import Container, Mapping

from maxtool.recipe.expressions import Undefined
from maxtool.recipe.keys import short


def by_kind(listed: object, kinds: Mapping[str, bool]) -> list[object]:
    """Return the flag of each layer's kind; an element that is none stays, for the type to refuse.

    Raises:
        Undefined: If it is something else than a list.
    """
    if not isinstance(listed, list | tuple):
        raise Undefined(f"{short(listed)} is not a list of the kinds of layers")
    return [kinds.get(item, item) if isinstance(item, str) else item for item in listed]


def numbered(numbers: object) -> Container[object]:
    """Return a list of numbers of layers.

    Raises:
        Undefined: If it is something else.
    """
    if not isinstance(numbers, list | tuple):
        raise Undefined(f"{short(numbers)} is not a list of numbers of layers")
    return numbers
