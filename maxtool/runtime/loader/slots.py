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
        self._length = 0  # of the text whose beginning was read here

    def usable(self, count: int, length: int) -> int:
        """Return how many of ``count`` tokens in the state a text of ``length`` tokens may rely on.

        The text is the one that was read here, as far as it has grown. It may rely on none of them
        where the state has lost what a layer with a window looks back at, or where the model reads
        longer texts in another way than shorter ones, and the state was read in the other way.
        """
        limit = self._manifest.reread_beyond
        same = _exceeds(length, limit) == _exceeds(self._length, limit)
        return count if same and self._state.holds_before(count, self.number) else 0

    def reusable(self, count: int, length: int) -> int:
        """Return how many of them another text of ``length`` tokens may rely on, or a new prompt.

        On none of them where what the model caches of either depends on how long it is.
        """
        whole = _exceeds(max(length, self._length), self._manifest.read_whole_beyond)
        return 0 if whole else self.usable(count, length)

    def piece(self, start: int, length: int, most: int) -> int:
        """Return how far to read a text of ``length`` tokens from ``start``: ``most`` of them.

        More where the model reads such a text in another way than the shorter one that a piece is.
        """
        end, limit = min(start + most, length), self._manifest.reread_beyond
        if _exceeds(length, self._manifest.read_whole_beyond):
            return length
        return end if limit is None or length <= limit else max(end, limit + 1)

    def copy(self, count: int, target: Slot) -> None:
        """Copy the first ``count`` tokens, on which a text may rely, to another slot."""
        self._state.copy(count, self.number, target.number)
        target._length = self._length

    def reads(self, start: int, length: int) -> None:
        """Note that a text of ``length`` tokens is about to be read from ``start`` on."""
        if start == 0:
            self._length = length


class Unread(NamedTuple):
    """Tokens of a text that are to be read: those from a position on."""

    slot: int
    ids: Sequence[int]
    start: int


def _exceeds(length: int, limit: int | None) -> bool:
    return limit is not None and length > limit


def inputs_of(manifest: Manifest, texts: Sequence[Unread]) -> dict[str, object]:
    """The inputs of a call that reads as many tokens of each text."""
    places = [(text.slot, text.start) for text in texts]
    return {"input_ids": [text.ids[text.start :] for text in texts], **places_of(manifest, places)}


def places_of(manifest: Manifest, places: Sequence[tuple[int, int]]) -> dict[str, object]:
    """The inputs that say in which slot, and at which position, each row of a call is read."""
    slots, positions = (np.array(numbers, np.int32) for numbers in zip(*places, strict=True))
    inputs: dict[str, object] = {"position": positions}
    return {**inputs, SLOT: slots} if manifest.batch > 1 else inputs
