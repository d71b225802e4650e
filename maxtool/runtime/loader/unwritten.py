"""Tokens that a model of texts does not write, as transformers leaves them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .manifest_fields import tokens
from .memory import Array


@dataclass(frozen=True)
class Unwritten:
    """Tokens that are left out of what is written.

    Attributes:
        ever: Those that stand nowhere.
        first: Those that are not the first behind a prompt.
    """

    ever: tuple[int, ...] = ()
    first: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.ever or self.first)

    def scores(self, logits: Array, made: int) -> Array:
        """The logits of what may stand behind a prompt and ``made`` tokens."""
        hidden = self.ever if made else self.ever + self.first
        if not hidden:
            return logits
        scores = logits.copy()
        scores[list(hidden)] = -np.inf
        return scores


def unwritten(item: Mapping[str, Any]) -> Unwritten:
    """The tokens that a manifest says; ValueError that names what is wrong."""
    return Unwritten(tokens(item, "ever"), tokens(item, "first"))
