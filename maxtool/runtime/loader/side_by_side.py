"""Texts that go on side by side, each in its slot of one state."""

from __future__ import annotations

from collections.abc import Sequence

from .continued_text import Text
from .model import Model
from .session import common_length
from .slots import Slot, Unread, inputs_of

DECODE, PREFILL = "decode", "prefill"


class SideBySide:
    """Places for texts in the slots of one state, and the steps that continue all of them.

    Each step reads what is new of a text that has just begun, and makes a token of each text.
    """

    def __init__(self, model: Model, *, remembers: bool = False) -> None:
        """Make room for as many texts as the model was compiled for (``--batch``).

        With ``remembers`` a text takes the slot that holds most of its beginning, which is not
        read again; otherwise none depends on those before it, not even by rounding.
        """
        self._model, manifest = model, model.manifest
        state = self._state = model.new_state()
        self._free = [Slot(manifest, state, number) for number in reversed(range(manifest.batch))]
        self._running: list[tuple[Slot, Text]] = []
        self._held: list[Sequence[int]] = [()] * manifest.batch if remembers else []

    @property
    def has_room(self) -> bool:
        """Return whether one more text can begin."""
        return bool(self._free)

    @property
    def running(self) -> list[Text]:
        """The texts that go on, those included that the last step has ended."""
        return [text for _, text in self._running]

    def begin(self, text: Text) -> None:
        """Give a free slot to a text, which the next step reads."""
        slot = self._free[-1]
        if self._held:
            slot = max(self._free, key=lambda one: common_length(self._held[one.number], text.ids))
            common = min(common_length(self._held[slot.number], text.ids), len(text.ids) - 1)
            text.read = text.reused = slot.usable(common, len(text.ids))
        self._free.remove(slot)
        self._running.append((slot, text))

    def step(self) -> None:
        """Make a token of each text: new ones are read one by one, others go on together."""
        going: list[tuple[Text, Unread]] = []
        for slot, text in self._running:
            start = slot.usable(text.read, len(text.ids))
            slot.reads(len(text.ids))
            unread = Unread(slot.number, text.ids, start)
            if start and start == len(text.ids) - 1:
                going.append((text, unread))
            else:
                self._call(PREFILL, [(text, unread)])
        if going:
            self._call(DECODE, going)

    def end(self, text: Text) -> None:
        """Free the slot of a text, at whichever point it is."""
        slot = next(slot for slot, other in self._running if other is text)
        self._running = [pair for pair in self._running if pair[1] is not text]
        self._free.append(slot)
        if self._held:
            self._held[slot.number] = text.ids[: text.read]

    def _call(self, entry: str, texts: Sequence[tuple[Text, Unread]]) -> None:
        inputs = inputs_of(self._model.manifest, [unread for _, unread in texts])
        rows = self._model.run(entry, inputs, self._state)["logits"]
        for (text, _), logits in zip(texts, rows, strict=True):
            text.take(logits)
