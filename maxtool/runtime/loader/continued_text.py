"""A prompt while it is continued, whoever makes its tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .constraint import picker
from .errors import MachineLacks, RunError
from .memory import Array
from .model import Model
from .prompts import Completion, Prompt
from .reply import Reply
from .specs import TEXT_TO_TEXT


class Text:
    """A prompt and what is made of it.

    Attributes:
        ids: All its tokens so far.
        images: Those that stand among them.
        read: How many of them the state holds.
        reused: How many of them it held before the first was read.
        choose: What picks its tokens.
        is_over: Whether no more come.
    """

    def __init__(self, model: Model, index: int, prompt: Prompt) -> None:
        text = prompt.text
        ids = model.encode(text) if isinstance(text, str) else text
        self.count = model.check_prompt(ids, prompt.max_tokens)
        self.ids, self.images = list(ids), prompt.images
        constraint = None if prompt.grammar is None else prompt.grammar.constraint()
        self.choose = picker(prompt.sampling, constraint)
        given, stops = list(self.ids), prompt.stops
        alone = prompt.alone or model.manifest.task == TEXT_TO_TEXT
        self.reply = Reply(model, given, stops=stops, alone=alone, constraint=constraint)
        self.read = self.reused = 0
        self.is_over = self.count == 0
        self._ends, self._index, self._prompt = model.manifest.eos, index, prompt
        self._unwritten = model.manifest.unwritten
        self._error: RunError | None = None

    def take(self, logits: Array) -> None:
        """Pick the next token from the logits behind all of them, which have been read by now."""
        self.read = len(self.ids)
        with self.keeping_errors():
            scores = self._unwritten.scores(logits, len(self.reply.made))
            self.push(self.choose(scores, self.ids))

    def push(self, token: int) -> None:
        """Take the next token, which may be an end of text."""
        if token in self._ends:
            self.is_over = True
            return
        self.ids.append(token)
        self.reply.push(token)
        self.is_over = self.reply.is_over or len(self.reply.made) == self.count

    def completed(self) -> Completion:
        """Outcome of the prompt."""
        reply = self.reply
        with self.keeping_errors():
            reply.finish()
        error = self._error
        why = reply.stopped(self._prompt.max_tokens) if error is None else "error"
        result = reply.ids, reply.made, reply.text, why, error
        return Completion(self._index, self._prompt, *result)

    @contextmanager
    def keeping_errors(self) -> Iterator[None]:
        """End this text alone if its sampler or the tokenizer fails; the machine ends them all."""
        try:
            yield
        except MachineLacks:
            raise
        except RunError as error:
            self._error, self.is_over = error, True
