"""The meaning of every operation: a table from its name to a NumPy function."""

from __future__ import annotations

from maxtool.parity import (
    dense,
    dot_attention,
    drawing,
    folds,
    moving,
    recurrences,
    rotations,
    scalar_functions,
    sliding,
)
from maxtool.parity.array_types import Definitions

COMPUTED: Definitions = {
    **dense.COMPUTED,
    **dot_attention.COMPUTED,
    **drawing.COMPUTED,
    **folds.COMPUTED,
    **recurrences.COMPUTED,
    **rotations.COMPUTED,
    **scalar_functions.COMPUTED,
    **sliding.COMPUTED,
}
"""Operations that take floats in float64."""

MOVED: Definitions = {
    **dense.MOVED,
    **dot_attention.MOVED,
    **moving.MOVED,
}
"""Operations that take elements as they are stored: no table is widened for some of its rows."""

DEFINITIONS: Definitions = {**COMPUTED, **MOVED}

UNDEFINED: dict[str, str] = {
    "all_gather": "it joins the parts of several devices, and a graph is evaluated for one",
    "all_reduce": "it adds up the parts of several devices, and a graph is evaluated for one",
}
"""Operations without a meaning on one device, each with the reason."""
