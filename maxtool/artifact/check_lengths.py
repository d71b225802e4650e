"""Number of tokens that a check compares: enough to pass every length with other arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterable

TOKENS = 24
"""Enough for positions, masks and the cache to matter; float64 is slow."""
PAST = 6
"""Tokens beyond a window or a context: some before it and some after it are read one by one."""
LONGEST = 512
"""The longest window or context that is passed."""
WORK = 2 * 10**11
"""Multiplications that a longer check may cost, which are half a minute at most."""


def tokens(turns: Iterable[int], work: int, context: int | None) -> int:
    """Return the number of tokens to compare.

    Args:
        turns: Lengths beyond which the model computes otherwise.
        work: How many multiplications a token costs at most, but for those of attention.
        context: The longest sequence that the artifact takes; None for any.
    """
    room = math.inf if context is None else context
    within = [
        turn
        for turn in reachable(turns, context)
        if turn <= LONGEST and (turn + PAST) * work <= WORK
    ]
    return int(min(max([TOKENS, *(turn + PAST for turn in within)]), room))


def reachable(turns: Iterable[int], context: int | None) -> list[int]:
    """The lengths beyond which sequences that the artifact takes are computed otherwise."""
    return [turn for turn in turns if context is None or turn < context]
