"""Drawing the next token from logits with a number that was drawn before."""

from __future__ import annotations

import numpy as np

from maxtool.parity.array_types import Array, Definitions


def _sample(
    seen: Array, logits: Array, tokens: Array, draws: Array, position: Array, settings: Array
) -> tuple[Array, Array]:
    """Mark the tokens as seen in place, and draw one from each row of penalised logits."""
    for row, ids in zip(seen, tokens, strict=True):
        row[ids[(ids >= 0) & (ids < row.size)]] = 1
    *limits, penalty = settings
    moved = np.where(logits > 0, logits / penalty, logits * penalty)
    number = draws[np.clip(position[0], 0, draws.size - 1)]
    rows = np.where(seen == 1, moved, logits)
    return seen, np.array([[_drawn(row, number, *limits)] for row in rows], np.int64)


def _drawn(
    logits: Array, number: float, temperature: float, top_k: float, top_p: float, min_p: float
) -> int:
    """The token at a number from 0 to 1 among those that are left, the likeliest first."""
    if not np.isfinite(logits.max()):
        return -1
    order = np.argsort(-logits, kind="stable")
    if temperature == 0:
        return int(order[0])
    if 0 < top_k < order.size:
        order = order[logits[order] >= logits[order[int(top_k) - 1]]]
    shares = np.exp((logits[order] - logits[order[0]]) / temperature)
    if top_p < 1:
        shares = shares[: np.searchsorted(shares.cumsum() / shares.sum(), top_p) + 1]
    shares = shares[shares >= min_p * shares[0]]
    place = np.searchsorted(shares.cumsum() / shares.sum(), number, side="right")
    return int(order[min(place, shares.size - 1)])


COMPUTED: Definitions = {"sample": _sample}
