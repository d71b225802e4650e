"""Activations that are written as several operations, as one: a chain of them reads its input once.

Files of other frameworks have ``x * sigmoid(x)`` as two operations, both of which read ``x``. What
computes ``x`` could not take both in.
"""

from __future__ import annotations

from maxtool.compiler.fusion.linear_fusions import reads_buffers
from maxtool.compiler.fusion.matcher import Fusion, Match, op
from maxtool.graph import Node


def _silu(match: Match) -> Node | None:
    """Return the product with its own sigmoid as one operation."""
    if any(map(reads_buffers, match.nodes)):
        return None
    return Node("silu", (match["x"],), {}, match.nodes[0].outputs)


ACTIVATION_FUSIONS = (
    Fusion((op("mul", "x gate -> y", commutes=True), op("sigmoid", "x -> gate")), _silu),
)
