"""Slots of a state, each the place of one text, and the inputs of calls that read on there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .manifest import Manifest
from .processor import State
from .text_entries import SLOT


class Slot:
    """The place of one text in a state.

    Attributes:
        number: Which one it is.
    """

    def __init__(self, manifest: Manifest, state: State, number: int = 0) -> None:
        self.number = number
        self._manifest, self._state = manifest, state
        self._was_long = False

    def usable(self, count: int, length: int) -> int:
        """Return how many of ``count`` tokens in the state a text of ``length`` tokens may rely on.

        On none of them where the state has lost what a layer with a window looks back at, or where
        the model reads longer texts in another way than shorter ones, and the state was read in the
        other way.
        """
        same = self._is_long(length) == self._was_long
        return count if same and self._state.holds_before(count, self.number) else 0

    def piece(self, start: int, length: int, most: int) -> int:
        """Return how far to read a text of ``length`` tokens from ``start``: ``most`` of them.

        More where the model reads such a text in another way than the shorter one that a piece is.
        """
        end = min(start + most, length)
        limit = self._manifest.reread_beyond
        return end if limit is None or not self._is_long(length) else max(end, limit + 1)

    def copy(self, count: int, target: Slot) -> None:
        """Copy the first ``count`` tokens, on which a text may rely, to another slot."""
        self._state.copy(count, self.number, target.number)
        target._was_long = self._was_long

    def reads(self, length: int) -> None:
        """Note that the state is about to be read as that of a text of ``length`` tokens."""
        self._was_long = self._is_long(length)

    def _is_long(self, length: int) -> bool:
        limit = self._manifest.reread_beyond
        return limit is not None and length > limit


class Unread(NamedTuple):
    """Tokens of a text that are to be read: those from a position on."""

    slot: int
    ids: Sequence[int]
    start: int


def inputs_of(manifest: Manifest, texts: Sequence[Unread]) -> dict[str, object]:
    """The inputs of a call that reads as many tokens of each text."""
    inputs: dict[str, object] = {
        "input_ids": [text.ids[text.start :] for text in texts],
        "position": np.array([text.start for text in texts], np.int32),
    }
    if manifest.batch > 1:
        inputs[SLOT] = np.array([text.slot for text in texts], np.int32)
    return inputs
