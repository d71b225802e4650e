"""A conversation with a model."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from .chat import ChatEncoder, ChatTemplate, Message, open_template
from .constraint import Constraint, picker
from .errors import TooLong
from .illustrated import Illustrations, no_images
from .memory import Array
from .model import Model
from .reply import Reply
from .sampling import Choose, Sampling
from .session import Session

SPARE = 4  # a reply has room when this part of the context is free


class Turn(NamedTuple):
    """A message, and the pixels of images in it."""

    message: Message
    images: Sequence[Array] = ()


class Conversation:
    """Turns of a user and a model, in memory: only what is new is read.

    Attributes:
        forgotten: Exchanges that were left out since the last question, as the context was full.
    """

    def __init__(
        self,
        model: Model,
        template: ChatTemplate | None = None,
        *,
        system: str | None = None,
        sampling: Sampling | None = None,
        stops: Sequence[str] = (),
        choose: Choose | None = None,
        constraint: Constraint | None = None,
    ) -> None:
        """Start a conversation.

        Args:
            model: Who replies.
            template: How the model writes a conversation; as the artifact says if None.
            system: What the model is told before the first turn.
            sampling: How tokens are picked.
            stops: Strings before which a reply ends.
            choose: What picks tokens; a sampler with ``sampling`` if None.
            constraint: What each reply follows, if anything.

        Raises:
            BadUsage: If the sampling is out of range.
            DoesNotFit: If the model has no tokenizer, or no template and none is given.
        """
        self.forgotten = 0
        self._model, self._stops = model, stops
        self._constraint = constraint
        self._choose = choose or picker(sampling or Sampling(), constraint)
        template = template or open_template(model.manifest)
        reads_images = model.manifest.image_tokens is not None
        self._illustrations = Illustrations(model) if reads_images else None
        self._encoder = ChatEncoder(
            template, model.tokenizer, model.manifest.context, self._illustrations
        )
        self._session = Session(model)
        self._system = [] if system is None else [_message("system", system)]
        self._turns: list[Turn] = []
        self._reply: Reply | None = None

    @property
    def messages(self) -> list[Message]:
        """All messages that are not forgotten, with ``role`` and ``content``."""
        said = [] if self._reply is None else [_message("assistant", self._reply.text)]
        return [*self._system, *(turn.message for turn in self._turns), *said]

    @property
    def reused(self) -> int:
        """Tokens of the last question's text that were in memory already."""
        return self._session.reused

    def ask(
        self,
        text: str,
        max_tokens: int | None = None,
        images: Sequence[str | os.PathLike[str]] = (),
    ) -> Reply:
        """Send a message to the model.

        Where the context has no room for a reply, the oldest exchanges are forgotten.

        Args:
            text: What the user says.
            max_tokens: Tokens of the reply at most; as many as the context holds if None.
            images: Files of images that stand before the text.

        Returns:
            The reply: iterating gives its text as it comes. As far as it came, the model remembers
            it at the next question.

        Raises:
            BadUsage: If ``max_tokens`` is negative.
            BadInput: If the text is not valid text, or a file is no image.
            DoesNotFit: If the template fails, the question alone is more than the context, or the
                model reads no images.
            MachineLacks: If there is no Jinja, or no Pillow.
        """
        said = [] if self._reply is None else [Turn(_message("assistant", self._reply.text))]
        turns = [*self._turns, *said, self._asked(text, images)]
        ids, kept = self._fitting(turns, max_tokens)
        pixels = [each for turn in kept for each in turn.images]
        placed = self._illustrations.placed(ids, pixels) if self._illustrations else ()
        count = self._model.check_prompt(ids, sys.maxsize if max_tokens is None else max_tokens)
        self.forgotten = (len(turns) - len(kept)) // 2
        if (constraint := self._constraint) is not None:
            constraint.begin()
        tokens = self._session.generate(ids, count, self._choose, placed)
        self._turns, model, stops = kept, self._model, self._stops
        self._reply = Reply(model, ids, tokens, stops=stops, alone=True, constraint=constraint)
        return self._reply

    def _asked(self, text: str, files: Sequence[str | os.PathLike[str]]) -> Turn:
        """The turn of a user."""
        if not files:
            return Turn(_message("user", text))
        if self._illustrations is None:
            raise no_images()
        parts = [*({"type": "image"} for _ in files), {"type": "text", "text": text}]
        images = self._illustrations.pixels([Path(file) for file in files])
        return Turn({"role": "user", "content": parts}, images)

    def _fitting(self, turns: list[Turn], max_tokens: int | None) -> tuple[list[int], list[Turn]]:
        """Ids of the conversation and the turns that are in them: the newest that leave room."""
        context = self._model.manifest.context
        spare = 0 if context is None else context // SPARE
        wanted = spare if max_tokens is None else min(max_tokens, spare)
        while True:
            with suppress(TooLong) if len(turns) > 2 else nullcontext():
                ids = self._encoder.encode([*self._system, *(turn.message for turn in turns)])
                if self._model.room(len(ids)) > wanted or len(turns) < 3:
                    return ids, turns
            turns = turns[2:]


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}
