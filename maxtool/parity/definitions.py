"""The meaning of every operation: a table from its name to a NumPy function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from maxtool.parity import (
    dense,
    dot_attention,
    drawing,
    folds,
    indexed,
    rearranging,
    rotations,
    scalar_functions,
    sliding,
)

Definition: TypeAlias = Callable[..., Any]
"""From operands, and attributes by name, to the result, or a tuple of several.

Sizes among the attributes are numbers, and ranges are slices.
"""

COMPUTED: Mapping[str, Definition] = {
    **dense.COMPUTED,
    **dot_attention.COMPUTED,
    **drawing.COMPUTED,
    **folds.COMPUTED,
    **rotations.COMPUTED,
    **scalar_functions.COMPUTED,
    **sliding.COMPUTED,
}
"""Operations that take floats in float64."""

MOVED: Mapping[str, Definition] = {
    **dense.MOVED,
    **dot_attention.MOVED,
    **indexed.MOVED,
    **rearranging.MOVED,
}
"""Operations that take elements as they are stored: no table is widened for some of its rows."""

DEFINITIONS: Mapping[str, Definition] = {**COMPUTED, **MOVED}

UNDEFINED: Mapping[str, str] = {
    "all_gather": "it joins the parts of several devices, and a graph is evaluated for one",
    "all_reduce": "it adds up the parts of several devices, and a graph is evaluated for one",
}
"""Operations without a meaning on one device, each with the reason."""
