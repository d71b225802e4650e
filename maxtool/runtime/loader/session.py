"""Generation that remembers: what was read once is not read again."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence

from .entries import EntryRunner
from .memory import Array
from .placed_images import PlacedImage, common_start, look
from .processor import Decoder
from .sampling import Choose, TokenSampler
from .slots import Slot, Unread, inputs_of


class Session:
    """The memory of one text that grows, or of one conversation.

    Attributes:
        ids: The tokens that the state holds, in their order.
        reused: Of the tokens last asked to be continued, those that were in the state already.
    """

    def __init__(self, model: EntryRunner) -> None:
        self.ids: list[int] = []
        self.reused = 0
        self._images: Sequence[PlacedImage] = ()
        memory = model.text_memory()
        self._model, self._state, self._decoder = model, memory.state, memory.decoder
        self._slot = Slot(model.manifest, memory.state)
        # A process that ends gives nothing back.
        weakref.finalize(self, model.give_back, memory).atexit = False

    def generate(
        self,
        ids: Sequence[int],
        count: int,
        choose: Choose,
        images: Sequence[PlacedImage] = (),
    ) -> Iterator[int]:
        """Tokens behind ``ids``, one at a time, up to ``count`` or an end-of-text token.

        A device that can draws the tokens itself, where ``choose`` is a :class:`TokenSampler` and
        none is left out.
        """
        before = list(ids)
        common = min(common_length(self.ids, before), len(before) - 1)
        common = common_start(common, self._images, images)
        self.reused = self._slot.reusable(common, len(before))
        start = self._looked(before, images)
        decoder = None if self._model.manifest.unwritten else self._decoder
        if decoder is not None and isinstance(choose, TokenSampler):
            yield from self._drawn(decoder, before, start, count, choose)
        else:
            yield from self._chosen(before, start, count, choose)

    def _looked(self, ids: list[int], images: Sequence[PlacedImage]) -> int:
        """Read what is not known up to the last image; the number of tokens that were read."""
        read, self._images = self.reused, images
        for image in images:
            if image.start < read:
                continue
            if image.start > read:
                self._read("prefill", ids[: image.start], read)
            look(self._model, self._state, self._slot, image)
            self.ids[image.start :] = ids[image.start : image.end]
            read = image.end
        return read

    def _chosen(
        self, before: list[int], position: int, count: int, choose: Choose
    ) -> Iterator[int]:
        """Tokens picked from logits."""
        name, unwritten = "prefill", self._model.manifest.unwritten
        for made in range(count):
            logits = self._read(name, before, position)
            chosen = choose(unwritten.scores(logits, made), before)
            if chosen in self._model.manifest.eos:
                return
            before.append(chosen)
            position = self._slot.usable(len(before) - 1, len(before))
            name = "decode" if position else "prefill"
            yield chosen

    def _drawn(
        self, decoder: Decoder, before: list[int], start: int, count: int, chooser: TokenSampler
    ) -> Iterator[int]:
        """Tokens that the device draws."""
        while count > 0:
            part = self._before_rereading(len(before), count)
            for token in self._part(decoder, before, start, part, chooser):
                if token in self._model.manifest.eos:
                    return
                before.append(token)
                yield token
            count -= part
            start = self._slot.usable(len(before) - 1, len(before))

    def _part(
        self, decoder: Decoder, before: Sequence[int], start: int, count: int, chooser: TokenSampler
    ) -> Iterator[int]:
        """Tokens behind ``before``, of which the state holds ``start``: an end of text is one too.

        Each is asked for before the last one is read, so that the device never waits for the host.
        The one behind an end of text is lost, but the state holds that end of text then.
        """
        del self.ids[start:]
        self._slot.reads(start, len(before))
        decoder.begin(before, start, chooser.draws(count), chooser.sampling)
        self.ids += before[start:]
        self._state.lengths[0] = len(before)
        for more in reversed(range(count)):
            if more:
                decoder.step(more - 1)
                self._state.lengths[0] += 1
            token = decoder.read()
            chooser.skip()
            if more:
                self.ids.append(token)
            yield token

    def _before_rereading(self, length: int, count: int) -> int:
        """Return how many of ``count`` tokens fit a text of ``length`` before it is read again."""
        limit = self._model.manifest.reread_beyond
        return count if limit is None or length > limit else min(count, limit - length + 1)

    def _read(self, name: str, ids: list[int], start: int) -> Array:
        """Read the tokens from ``start`` on; the logits of what follows."""
        del self.ids[start:]
        self._slot.reads(start, len(ids))
        inputs = inputs_of(self._model.manifest, [Unread(self._slot.number, ids, start)])
        logits: Array = self._model.run(name, inputs, self._state)["logits"][0]
        self.ids += ids[start:]
        return logits


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the common beginning of two lists."""
    known, unknown = 0, min(len(first), len(second))
    while known < unknown:  # halves are compared, which takes far less than a token at a time
        middle = (known + unknown + 1) // 2
        if first[known:middle] == second[known:middle]:
            known = middle
        else:
            unknown = middle - 1
    return known
