"""Activations that are written as several operations, as one: a chain of them reads its input once.

Files of other frameworks have ``x * sigmoid(x)`` as two operations, both of which read ``x``. What
computes ``x`` could not take both in.
"""

from __future__ import annotations

from math import isclose, sqrt

from maxtool.compiler.fusion.linear_fusions import reads_buffers
from maxtool.compiler.fusion.matcher import Fusion, Match, op
from maxtool.graph import Node

DIGITS = 1e-5
"""Relative error of a number in a file that stands for an irrational one."""


def _silu(match: Match) -> Node | None:
    """Return the product with its own sigmoid as one operation."""
    if any(map(reads_buffers, match.nodes)):
        return None
    return Node("silu", (match["x"],), {}, match.nodes[0].outputs)


def _gelu(match: Match) -> Node | None:
    """Return ``x * (1 + erf(x / sqrt(2))) / 2`` as one operation."""
    scaling = match.nodes[-1]
    root = sqrt(2.0 if scaling.op == "div" else 0.5)
    wanted = {"half": 0.5, "one": 1.0, "root": root}
    numbers = {name: match.index.number(match[name]) for name in wanted}
    fits = all(
        number is not None and isclose(number, wanted[name], rel_tol=DIGITS)
        for name, number in numbers.items()
    )
    fits &= match["x"].shape == match.nodes[0].outputs[0].shape
    if not fits or any(map(reads_buffers, match.nodes)):
        return None
    return Node("gelu", (match["x"],), {}, match.nodes[0].outputs)


_CURVE = (op("add", "curve one -> above", commutes=True), op("erf", "scaled -> curve"))
_SCALED = (op("div", "x root -> scaled"), op("mul", "x root -> scaled", commutes=True))
# Half of what, times what, in the three ways in which files have it.
_PRODUCTS = (
    (
        op("mul", "whole half -> y", commutes=True),
        op("mul", "x above -> whole", commutes=True),
    ),
    (
        op("mul", "halved above -> y", commutes=True),
        op("mul", "x half -> halved", commutes=True),
    ),
    (
        op("mul", "x share -> y", commutes=True),
        op("mul", "above half -> share", commutes=True),
    ),
)

ACTIVATION_FUSIONS = (
    Fusion((op("mul", "x gate -> y", commutes=True), op("sigmoid", "x -> gate")), _silu),
    *(Fusion((*product, *_CURVE, scaled), _gelu) for product in _PRODUCTS for scaled in _SCALED),
)
