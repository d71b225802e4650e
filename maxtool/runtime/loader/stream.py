"""Text of tokens as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class TextStream:
    """Text of tokens as they come: characters are given out when all their bytes are there.

    Each step decodes the tokens since the last but one piece given out, which are few, so that a
    leading space or a character in several tokens comes out as in the text decoded at once.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], ids: Sequence[int]) -> None:
        self._decode = decode
        self._ids = list(ids)
        self._start, self._done = 0, len(self._ids)

    def push(self, token: int) -> str:
        """The text that ``token`` completes."""
        self._ids.append(token)
        text = self._pending()
        if text.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        return self._take(text)

    def flush(self) -> str:
        """Return the rest, incomplete characters replaced."""
        return self._take(self._pending())

    def _pending(self) -> str:
        text = self._decode(self._ids[self._start : self._done])
        return self._decode(self._ids[self._start :])[len(text) :]

    def _take(self, text: str) -> str:
        if text:
            self._start, self._done = self._done, len(self._ids)
        return text


class StopStrings:
    """Text up to the first of some strings. What may begin one is held back until it is clear.

    Attributes:
        found: The string that ended the text, once it has.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self.found: str | None = None
        several = [strings] if isinstance(strings, str) else strings
        self._strings = [string for string in several if string]
        self._longest = max(map(len, self._strings), default=1)
        self._held = ""

    def push(self, text: str) -> str:
        """Add text; returns the part to show, nothing once a stop string has occurred."""
        if self.found is not None:
            return ""
        self._held += text
        places = [(self._held.find(string), string) for string in self._strings]
        hits = [(position, string) for position, string in places if position >= 0]
        if hits:
            place, self.found = min(hits, key=lambda hit: hit[0])
            return self._held[:place]
        return self._release(len(self._held) - self._beginning())

    def flush(self) -> str:
        """Return the text that was held back, when no more comes."""
        return "" if self.found is not None else self._release(len(self._held))

    def _beginning(self) -> int:
        """Length of the longest end of the text that begins a string."""
        lengths = range(min(self._longest - 1, len(self._held)), 0, -1)
        ends = ((length, self._held[-length:]) for length in lengths)
        return next((n for n, end in ends if any(s.startswith(end) for s in self._strings)), 0)

    def _release(self, length: int) -> str:
        text, self._held = self._held[:length], self._held[length:]
        return text
