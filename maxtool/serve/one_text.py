"""The place for texts of a model without slots: one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from maxtool.runtime.loader import Model
from maxtool.runtime.loader.continued_text import Text
from maxtool.runtime.loader.session import Session


class OneText:
    """Place for one text; its session remembers what it has read, and lets a GPU draw the tokens.

    It offers what :class:`~maxtool.runtime.loader.side_by_side.SideBySide` does.
    """

    def __init__(self, model: Model) -> None:
        self._session = Session(model)
        self._tokens: Iterator[int] = iter(())
        self.running: list[Text] = []

    @property
    def has_room(self) -> bool:
        """Return whether a text can begin."""
        return not self.running

    def begin(self, text: Text) -> None:
        """Take a text, which the next step reads."""
        self._tokens = self._session.generate(text.reply.ids, text.count, text.choose, text.images)
        self.running = [text]

    def step(self) -> None:
        """Make a token of the text."""
        (text,) = self.running
        with text.keeping_errors():
            token = next(self._tokens, None)
            text.reused = self._session.reused
            if token is None:
                text.is_over = True
            else:
                text.push(token)

    def end(self, _: Text) -> None:
        """Free the place, at whichever point the text is."""
        self._tokens, self.running = iter(()), []
