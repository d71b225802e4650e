"""Texts that go on side by side, each in its slot of one state."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .continued_text import Text
from .memory import Array
from .model import Model
from .placed_images import PlacedImage, common_start, look
from .session import common_length
from .slots import Slot, Unread, inputs_of

DECODE, PREFILL = "decode", "prefill"
LEAST = 16  # tokens in common that are worth waiting for


class Held(NamedTuple):
    """Tokens of an ended text that are still in its slot, and the images among them."""

    ids: Sequence[int] = ()
    images: Sequence[PlacedImage] = ()


@dataclass(eq=False)
class Place:
    """A text in its slot.

    Attributes:
        slot: The slot.
        text: The text.
        reader: The place of a text with the same beginning, which is read there and copied.
        common: How many tokens they have in common.
    """

    slot: Slot
    text: Text
    reader: Place | None = None
    common: int = 0

    @property
    def start(self) -> int:
        """Return how many tokens of the text need not be read."""
        return self.slot.usable(self.text.read, len(self.text.ids))


class SideBySide:
    """Places for texts in the slots of one state, and the steps that continue all of them.

    Each step reads what is new of a text that has just begun, and makes a token of each text.
    """

    def __init__(self, model: Model, *, remembers: bool = False, chunk: int = sys.maxsize) -> None:
        """Make room for as many texts as the model was compiled for (``--batch``).

        With ``remembers`` a text takes the slot that holds most of its beginning, or a copy of what
        another text has of it, which is not read again; otherwise none depends on those before it
        or beside it, not even by rounding. Each step reads ``chunk`` tokens of new texts at most,
        so that the others need not wait for a long one.
        """
        self._model, manifest, self._chunk = model, model.manifest, chunk
        state = self._state = model.new_state()
        self._free = [Slot(manifest, state, number) for number in reversed(range(manifest.batch))]
        self._running: list[Place] = []
        self._held = [Held() for _ in self._free] if remembers else []

    @property
    def has_room(self) -> bool:
        """Return whether one more text can begin."""
        return bool(self._free)

    @property
    def running(self) -> list[Text]:
        """The texts that go on, those included that the last step has ended."""
        return [place.text for place in self._running]

    def begin(self, text: Text) -> None:
        """Give a free slot to a text, which the next steps read."""
        place = Place(self._free[-1], text)
        if self._held:
            slot = max(self._free, key=lambda one: self._known(one, text))
            text.read = text.reused = self._known(slot, text)[0]
            place = self._follower(slot, text)
        self._free.remove(place.slot)
        self._running.append(place)

    def step(self) -> None:
        """Make a token of each text: new ones are read one by one, others go on together."""
        for place in self._running:
            self._share(place)
        going: list[Place] = []
        reading: list[Place] = []
        for place in self._running:
            if place.reader is None:
                last = place.start == len(place.text.ids) - 1 > 0
                (going if last else reading).append(place)
        self._read(reading)
        if going:
            for place, logits in zip(going, self._logits(DECODE, going), strict=True):
                place.text.take(logits)

    def end(self, text: Text) -> None:
        """Free the slot of a text, at whichever point it is."""
        place = next(place for place in self._running if place.text is text)
        self._running.remove(place)
        self._free.append(place.slot)
        if self._held:
            self._held[place.slot.number] = Held(text.ids[: text.read], text.images)

    def _known(self, slot: Slot, text: Text) -> tuple[int, int]:
        """The number of tokens that a text may rely on in a slot, and of those in common."""
        common = _common(self._held[slot.number], text, len(text.ids) - 1)
        return slot.reusable(common, len(text.ids)), common

    def _follower(self, slot: Slot, text: Text) -> Place:
        """The place of a text, which waits where another one has, or is to have, more of it."""
        found = Place(slot, text)
        if self._model.manifest.is_recurrent:
            return self._same(found)
        for place in self._running:
            common = _common(place.text, text, len(text.ids))
            gain = common - max(found.common, text.read)
            if gain >= LEAST or (gain > 0 and common == len(text.ids)):
                found = Place(slot, text, place, common)
        return found

    def _same(self, found: Place) -> Place:
        """The place of a text that waits for an equal one: a state is of all tokens, or of none."""
        for place in self._running:
            length = len(found.text.ids)
            equal = len(place.text.ids) == length == _common(place.text, found.text, length)
            if equal and place.text.read < length:
                found.reader, found.common = place.reader or place, length
                return found
        return found

    def _share(self, place: Place) -> None:
        """Copy what another text has of the beginning, once it has all of that."""
        reader, text = place.reader, place.text
        if reader is None or (reader in self._running and reader.text.read < place.common):
            return
        place.reader, count = None, min(place.common, len(text.ids) - 1)
        if reader in self._running and reader.slot.reusable(count, len(text.ids)):
            reader.slot.copy(count, place.slot)
            text.read = text.reused = count

    def _read(self, places: Sequence[Place]) -> None:
        """Read a chunk of new texts: those that have waited longest come first."""
        left = self._chunk
        for place in places:
            left -= self._read_on(place, left)
            if left <= 0:
                return

    def _read_on(self, place: Place, most: int) -> int:
        """Read what comes next of a new text: some tokens, or an image; how many tokens it was."""
        text, start = place.text, place.start
        image = next((one for one in text.images if one.start >= start), None)
        if image is not None and image.start == start:
            end = image.end
            place.slot.reads(start, len(text.ids))
            look(self._model, self._state, place.slot, image)
        else:
            end = place.slot.piece(start, len(text.ids), most)
            end = end if image is None else min(end, image.start)
            (logits,) = self._logits(PREFILL, [place], end)
            if end == len(text.ids):
                self._take(place, logits)
                return end - start
        text.read = end
        self._running.remove(place)
        self._running.append(place)
        return end - start

    def _take(self, place: Place, logits: Array) -> None:
        """Continue a text that has been read, and those that are the same up to here."""
        length = len(place.text.ids)
        same = [one for one in self._running if one.reader is place and one.common == length]
        for other in same:
            if len(other.text.ids) == length:
                place.slot.copy(length, other.slot)
                other.reader, other.text.reused = None, length
                other.text.take(logits)
        place.text.take(logits)

    def _logits(self, entry: str, places: Sequence[Place], end: int | None = None) -> Array:
        """Read texts up to ``end``; the logits of what follows, a row for each."""
        unread = []
        for place in places:
            ids, start = place.text.ids, place.start
            place.slot.reads(start, len(ids))
            unread.append(Unread(place.slot.number, ids[:end], start))
        inputs = inputs_of(self._model.manifest, unread)
        logits: Array = self._model.run(entry, inputs, self._state)["logits"]
        return logits


def _common(first: Text | Held, second: Text, most: int) -> int:
    """Count the tokens of the common beginning of two texts, images looked at as well."""
    common = min(common_length(first.ids, second.ids), most)
    return common_start(common, first.images, second.images)
