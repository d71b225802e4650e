"""Picking tokens from logits."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .errors import BadUsage, RunError
from .memory import Array


def chooser(
    temperature: float, top_k: int | None, top_p: float | None, seed: int | None
) -> Callable[[Array], int]:
    """The function that picks a token from logits; raises ``BadUsage`` for options out of range."""
    if not 0 <= temperature < math.inf:
        raise BadUsage(f"temperature {temperature} is not a finite number from 0 up")
    if (top_k is not None and top_k < 1) or (top_p is not None and not 0 < top_p <= 1):
        raise BadUsage("top-k counts tokens from 1 up, and top-p is a share from 0 to 1")
    if seed is not None and seed < 0:
        raise BadUsage(f"seed {seed} is negative")
    random = np.random.default_rng(seed)

    def choose(logits: Array) -> int:
        best = int(logits.argmax())
        if not math.isfinite(logits[best]):
            raise RunError("the model's logits are not finite numbers")
        if temperature == 0:
            return best
        order = np.argsort(-logits)[:top_k]
        with np.errstate(over="ignore"):  # minus infinity is a share of 0
            scaled = np.exp((logits[order].astype(np.float64) - float(logits[best])) / temperature)
        shares = scaled / scaled.sum()
        kept = order.size
        if top_p is not None:
            kept = int(np.searchsorted(shares.cumsum(), top_p)) + 1
        shares = shares[:kept] / shares[:kept].sum()
        return int(random.choice(order[:kept], p=shares))

    return choose
