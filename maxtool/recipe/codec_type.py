"""Codecs: the pair of functions by which keys become a field's value, and it becomes keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from maxtool.recipe.expressions import Values

Raws = Sequence[Any]

NUMBER, NUMBER_OR_NULL, FLAGS_OR_NULL = "a number", "a number or null", "flags or null"
INTEGERS, SIZES_OR_NULL, COUNTS_OR_NULL = "integers", "sizes or null", "counts or null"


class Unspellable(ValueError):
    """Keys cannot say a value."""


@dataclass(frozen=True)
class Codec:
    """A row of the table.

    ``read`` gives the field's value from those of the keys, None where they say nothing. A value
    that does not fit is given as it is: the field's type then refuses it. ``write`` gives the keys'
    values from the field's, None for a key that is not written, or raises Unspellable; flags are
    never null here.
    """

    read: Callable[[Raws, Values], Any]
    write: Callable[[Any, Values], Raws]
    types: tuple[str, ...]  # of the fields it serves
    keys: tuple[str, ...] = ("any",)  # of each key's value, a row of fieldtypes.TYPES, or "any"
    needs: Mapping[str, str] = field(default_factory=dict)  # other fields, and what they may be
    # Texts, flags and sizes that write alone takes: they may come later.
    writes_with: tuple[str, ...] = ()
