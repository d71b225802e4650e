"""Attention of heads that lie side by side in the vectors of tokens, on CPUs.

A projection gives [batch, length, heads, dim], and the operation wants heads before the length. The
kernel reads either order, so nothing is moved.
"""

from __future__ import annotations

from maxtool.compiler.fusion.linear_fusions import reads_buffers
from maxtool.compiler.fusion.matcher import Fusion, Match, op
from maxtool.compiler.kernels.cpu.block_attention import fits_blocks
from maxtool.graph import Node

UNMOVED = "attention_by_token"
SWAPPED = (0, 2, 1, 3)


def _by_token(match: Match) -> Node | None:
    """Return the attention with the permutations before and after it as one node."""
    after, attention, *before = match.nodes
    if any(node.attributes["dims"] != SWAPPED for node in (after, *before)):
        return None
    if any(map(reads_buffers, match.nodes)):  # which may be written before the last permutation
        return None
    query, _, value = attention.inputs[:3]
    if not fits_blocks(query.dtype.value, int(query.shape[3]), int(value.shape[3])):
        return None
    operands = (match["q"], match["k"], match["v"], *match.all("*masks"))
    return Node(UNMOVED, operands, attention.attributes, after.outputs)


ATTENTION_FUSIONS = (
    Fusion(
        (
            op("permute", "attended -> merged"),
            op("scaled_dot_product_attention", "query key value *masks -> attended"),
            op("permute", "q -> query"),
            op("permute", "k -> key"),
            op("permute", "v -> value"),
        ),
        _by_token,
    ),
)
