"""Answers as OpenAI's API writes them: completions and chats, whole and in pieces."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Protocol

from maxtool.serve.logprobs import Picked

Json = dict[str, Any]
# Why a text ended, in the words of the API; the loader's are finer.
ENDINGS: Mapping[str, str] = {
    "stop": "stop",
    "end": "stop",
    "length": "length",
    "context": "length",
}


class Form(Protocol):
    """Form of one kind of answer."""

    prefix: str  # of ids
    whole: str  # what an answer is called
    piece: str  # what a piece of one is called

    def said(self, text: str) -> Json:
        """The text of an answer."""

    def begun(self) -> Json | None:
        """Return what comes before the first piece, if anything."""

    def added(self, text: str) -> Json:
        """The text of a piece."""

    def ended(self) -> Json:
        """Return what stands for the text in the last piece."""

    def logprobs(self, picked: Sequence[Picked], offset: int) -> Json:
        """Return what is said of how likely tokens are, whose text begins at ``offset``."""


class _Chat:
    prefix, whole, piece = "chatcmpl-", "chat.completion", "chat.completion.chunk"

    def said(self, text: str) -> Json:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def begun(self) -> Json | None:
        return {"delta": {"role": "assistant", "content": ""}}

    def added(self, text: str) -> Json:
        return {"delta": {"content": text}}

    def ended(self) -> Json:
        return {"delta": {}}

    def logprobs(self, picked: Sequence[Picked], offset: int) -> Json:  # noqa: ARG002
        tokens = [
            {**one.token.content(), "top_logprobs": [other.content() for other in one.top]}
            for one in picked
        ]
        return {"content": tokens, "refusal": None}


class _Text:
    prefix, whole, piece = "cmpl-", "text_completion", "text_completion"

    def said(self, text: str) -> Json:
        return {"text": text}

    def begun(self) -> Json | None:
        return None

    def added(self, text: str) -> Json:
        return self.said(text)

    def ended(self) -> Json:
        return self.said("")

    def logprobs(self, picked: Sequence[Picked], offset: int) -> Json:
        tokens = [one.token for one in picked]
        lengths = [len(token.text) for token in tokens]
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [
                {other.text: other.logprob for other in reversed([*one.top, one.token])}
                for one in picked
            ],
            "text_offset": list(accumulate(lengths, initial=offset))[: len(tokens)],
        }


CHAT_FORM: Form = _Chat()
TEXT_FORM: Form = _Text()


@dataclass(frozen=True)
class Answer:
    """One answer, and the parts that all its pieces share."""

    form: Form
    model: str
    created: int
    identity: str = field(default_factory=lambda: uuid.uuid4().hex)

    def whole(self, choices: Sequence[Json], usage: Json) -> Json:
        """The answer in one piece."""
        return {**self._head(self.form.whole), "choices": list(choices), "usage": usage}

    def piece(self, choices: Sequence[Json], usage: Json | None, *, counted: bool) -> Json:
        """A piece; if tokens are counted at the end, each has a field for their number."""
        content = {**self._head(self.form.piece), "choices": list(choices)}
        return {**content, "usage": usage} if counted else content

    def _head(self, kind: str) -> Json:
        identity = f"{self.form.prefix}{self.identity}"
        return {"id": identity, "object": kind, "created": self.created, "model": self.model}


def choice(index: int, said: Json, logprobs: Json | None, stopped: str | None) -> Json:
    """A choice of an answer; ``stopped`` is the loader's word for why it ended, or None."""
    reason = None if stopped is None else ENDINGS[stopped]
    return {"index": index, **said, "logprobs": logprobs, "finish_reason": reason}


def usage(prompt: int, made: int, cached: int) -> Json:
    """The number of tokens that an answer took."""
    counts = {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}
    return {**counts, "prompt_tokens_details": {"cached_tokens": cached}}
