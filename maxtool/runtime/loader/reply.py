"""A generation as text, piece by piece, and what is known of it afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from .constraint import Constraint
from .model import Model
from .stream import StopStrings, TextStream


class Reply:
    """Tokens as they are made, as text: iterating gives its pieces.

    Attributes:
        ids: The tokens that are continued.
        made: The tokens made so far.
        text: Their text so far, as far as it was given out.
        stop: The stop string that ended it, once one has.
    """

    def __init__(
        self,
        model: Model,
        ids: Sequence[int],
        tokens: Iterable[int] = (),
        *,
        stops: Sequence[str] = (),
        alone: bool = False,
        constraint: Constraint | None = None,
    ) -> None:
        """Prepare; ``alone`` is for text that does not go on where the text of ``ids`` ends.

        Whoever makes the tokens where they come from no iterator hands each to :meth:`push`. They
        are picked as ``constraint`` allows, if there is one, and end where it is complete.
        """
        self.ids, self.made = ids, list[int]()
        self.text = ""
        self.stop: str | None = None
        self._model, self._tokens = model, tokens
        self._stops, self._constraint = StopStrings(stops), constraint
        before = [] if alone else ids
        self._stream = TextStream(model.decode, before) if model.manifest.tokenizer_file else None
        self._times = [time.perf_counter()]

    def __iter__(self) -> Iterator[str]:
        for token in self._tokens:
            yield self.push(token)
            if self.stop is not None:
                return
            if self.is_over:
                break
        yield self.finish()

    @property
    def is_over(self) -> bool:
        """Return whether the text has ended, however many tokens may be made."""
        return self.stop is not None or self._is_complete

    @property
    def _is_complete(self) -> bool:
        return self._constraint is not None and self._constraint.is_complete

    def push(self, token: int) -> str:
        """Take a token; returns the text that can be shown by now."""
        self.made.append(token)
        self._times.append(time.perf_counter())
        return self._given(self._stream.push(token) if self._stream else f"{token} ")

    def finish(self) -> str:
        """Return the rest of the text, when no more tokens come."""
        return self._given(self._stream.flush() if self._stream else "", last=True)

    def _given(self, text: str, *, last: bool = False) -> str:
        """Return the part of a text that can be shown by now."""
        shown = self._stops.push(text) + (self._stops.flush() if last else "")
        self.text += shown
        self.stop = self._stops.found
        return shown

    def stopped(self, max_tokens: int) -> str:
        """Return why it ended: ``stop``, ``context``, ``length`` or ``end``."""
        if self.stop is not None:
            return "stop"
        if self._is_complete:
            return "end"
        if len(self.made) == self._model.room(len(self.ids)):
            return "context"
        return "length" if len(self.made) == max_tokens else "end"

    def speed(self) -> dict[str, float | None]:
        """Tokens per second, of reading those that are continued and of making the others."""
        return {
            "prefill": _rate(len(self.ids), self._times[:2]),
            "decode": _rate(len(self.made) - 1, self._times[1:]),
        }


def _rate(count: int, times: Sequence[float]) -> float | None:
    """Things per second between the first and the last time."""
    seconds = times[-1] - times[0] if times else 0.0
    return count / seconds if count > 0 and seconds > 0 else None
