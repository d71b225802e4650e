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
        """What is left, incomplete characters replaced."""
        return self._take(self._pending())

    def _pending(self) -> str:
        given = self._decode(self._ids[self._start : self._done])
        return self._decode(self._ids[self._start :])[len(given) :]

    def _take(self, text: str) -> str:
        if text:
            self._start, self._done = self._done, len(self._ids)
        return text
