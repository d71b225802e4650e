"""How many tokens a check compares: enough to pass where a model computes otherwise."""

from __future__ import annotations

import math

from maxtool.parity.references import CachedReference, Reference

TOKENS = 24
"""Enough for positions, masks and the cache to matter; the reference is slow."""
PAST = 6
"""Tokens beyond a window or a context: some before it and some after it are read one by one."""
LONGEST = 512
"""The longest window or context that is passed."""
WORK = 2 * 10**11
"""Multiplications that a longer check may cost, which are half a minute at most."""


def tokens(expected: Reference, context: int | None) -> int:
    """How many tokens to compare.

    Args:
        expected: The reference, which knows where it computes otherwise, and what a token costs.
        context: The longest sequence that the artifact takes, None for any.
    """
    room = math.inf if context is None else context
    within = [turn for turn in turns(expected, context) if _is_affordable(turn, expected)]
    return int(min(max([TOKENS, *(turn + PAST for turn in within)]), room))


def turns(expected: Reference, context: int | None) -> list[int]:
    """Lengths, ascending, beyond which sequences that the artifact takes are computed otherwise."""
    found = expected.turns if isinstance(expected, CachedReference) else ()
    return [turn for turn in found if context is None or turn < context]


def _is_affordable(turn: int, expected: Reference) -> bool:
    work = expected.work if isinstance(expected, CachedReference) else 0
    return turn <= LONGEST and (turn + PAST) * work <= WORK
