"""Compiled parts of a program: closures over a scope, and views of memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.simt.dtypes import Value
from tests.simt.memory import Memory
from tests.simt.scope import Scope

Evaluate = Callable[[Scope], Value]


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expression ready to run.

    Args:
        run: Computes it.
        key: Equal for expressions that are equal; 0 if it may change while its variables do not.
        variables: What it depends on.
    """

    run: Evaluate
    key: int
    variables: frozenset[int]


@dataclass(frozen=True, slots=True)
class View:
    """A buffer: a place in a memory seen as elements of a type."""

    memory: Memory
    dtype: np.dtype[Any]
    offset: int = 0


# Memory, first element, type of elements, and how many neighbours an access touches.
Place = tuple[Memory, Value, np.dtype[Any], int]
