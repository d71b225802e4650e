"""Generation for many prompts: as many side by side as the state has slots.

A slot whose text has ended takes the next prompt at once, while the others go on. What is made of a
prompt does not depend on the others, nor on its slot, but for rounding: a call for several rows may
add up numbers in another order than a call for one. With bfloat16 matrices on CPUs that multiply
pairs of such numbers, a call for several rows also rounds activations to bfloat16, which moves
logits by some thousandths, so that a drawn text may be another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias

from .errors import MachineLacks, RunError
from .memory import Array
from .model import Model
from .prompts import MAX_TOKENS, Completion, Prompt
from .reply import Reply
from .sampling import Sampling, TokenSampler
from .session import Session
from .slots import Slot, Unread, inputs_of

DECODE, PREFILL = "decode", "prefill"


def generate_many(
    model: Model,
    prompts: Iterable[str | Sequence[int] | Prompt],
    max_tokens: int = MAX_TOKENS,
    *,
    stops: Sequence[str] = (),
    sampling: Sampling | None = None,
) -> Iterator[Completion]:
    """Continue prompts, as many at once as the model was compiled for (``--batch``).

    Prompts are taken one after the other, each when there is a slot for it: an iterable may make
    them as it goes. Each is continued as if it were alone, with its own length, random numbers and
    end; with a seed, equal prompts get equal texts, but for rounding.

    Args:
        model: What was compiled with any ``--batch``: without one, prompts wait for each other.
        prompts: Texts, lists of token ids, or a :class:`Prompt` each for options of its own; or
            a single text.
        max_tokens: How many tokens to make at most, of what is not a :class:`Prompt`.
        stops: Strings before which such a text ends, or a single one.
        sampling: How its tokens are picked; the likeliest ones if None.

    Yields:
        What became of each prompt, in the order in which they end. A prompt that cannot be
        continued, as it is too long or not valid text, has an ``error``, and the others go on.
    """
    usual = Prompt("", max_tokens, sampling or Sampling(), stops)
    several = [prompts] if isinstance(prompts, str) else prompts
    texts = (
        begun(model, i, p if isinstance(p, Prompt) else replace(usual, text=p))
        for i, p in enumerate(several)
    )
    return completed(model, texts)


def completed(model: Model, texts: Iterator[Begun]) -> Iterator[Completion]:
    """Outcomes of texts; those that are refused already pass through in their turn."""
    if model.manifest.batch == 1:
        return (_alone(model, text) for text in texts)
    return _Texts(model).run(texts)


def begun(model: Model, index: int, prompt: Prompt) -> Begun:
    """A text, or what became of a prompt that cannot be continued."""
    try:
        return Text(model, index, prompt)
    except RunError as error:
        return refused(index, prompt, error)


def refused(index: int, prompt: Prompt, error: RunError) -> Completion:
    """Outcome of a prompt that cannot be continued."""
    return Completion(index, prompt, (), (), "", "error", error)


class Text:
    """A prompt and what is made of it.

    Attributes:
        ids: All its tokens so far.
        read: How many of them the state holds.
        is_over: Whether no more come.
    """

    def __init__(self, model: Model, index: int, prompt: Prompt) -> None:
        text = prompt.text
        ids = model.encode(text) if isinstance(text, str) else text
        self.count = model.check_prompt(ids, prompt.max_tokens)
        self.ids = list(ids)
        self.choose = TokenSampler(prompt.sampling)
        self.reply = Reply(model, list(self.ids), stops=prompt.stops, alone=prompt.alone)
        self.read, self.is_over = 0, self.count == 0
        self._ends, self._index, self._prompt = model.manifest.eos, index, prompt
        self._error: RunError | None = None

    def take(self, logits: Array) -> None:
        """Pick the next token from the logits behind all of them, which have been read by now."""
        self.read = len(self.ids)
        with self.keeping_errors():
            self.push(self.choose(logits, self.ids))

    def push(self, token: int) -> None:
        """Take the next token, which may be an end of text."""
        if token in self._ends:
            self.is_over = True
            return
        self.ids.append(token)
        self.reply.push(token)
        self.is_over = self.reply.stop is not None or len(self.reply.made) == self.count

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


Begun: TypeAlias = Text | Completion


def _alone(model: Model, text: Begun) -> Completion:
    """Continue a text where the state holds a single one."""
    if isinstance(text, Completion):
        return text
    with text.keeping_errors():
        for token in Session(model).generate(text.reply.ids, text.count, text.choose):
            text.push(token)
            if text.is_over:
                break
    return text.completed()


class _Texts:
    """Texts that go on side by side, each in its slot of one state."""

    def __init__(self, model: Model) -> None:
        self._model, manifest = model, model.manifest
        state = self._state = model.new_state()
        self._free = [Slot(manifest, state, number) for number in reversed(range(manifest.batch))]
        self._running: list[tuple[Slot, Text]] = []

    def run(self, waiting: Iterator[Begun]) -> Iterator[Completion]:
        """Yield what became of each text, as they end."""
        while True:
            yield from self._fill(waiting)
            if not self._running:
                return
            self._step()
            yield from self._ended()

    def _fill(self, waiting: Iterator[Begun]) -> Iterator[Completion]:
        """Give free slots to texts that wait; yield those that need none.

        The texts that are running make a token behind each of these, however many follow.
        """
        while self._free and (text := next(waiting, None)) is not None:
            if isinstance(text, Text) and not text.is_over:
                self._running.append((self._free.pop(), text))
                continue
            yield text if isinstance(text, Completion) else text.completed()
            if self._running:
                return

    def _step(self) -> None:
        """Make a token of each text: new ones are read one by one, others go on together."""
        going: list[tuple[Text, Unread]] = []
        for slot, text in self._running:
            start = slot.usable(text.read, len(text.ids))
            unread = Unread(slot.number, text.ids, start)
            if start:
                going.append((text, unread))
            else:
                self._call(PREFILL, [(text, unread)])
        if going:
            self._call(DECODE, going)

    def _call(self, entry: str, texts: Sequence[tuple[Text, Unread]]) -> None:
        inputs = inputs_of(self._model.manifest, [unread for _, unread in texts])
        rows = self._model.run(entry, inputs, self._state)["logits"]
        for (text, _), logits in zip(texts, rows, strict=True):
            text.take(logits)

    def _ended(self) -> Iterator[Completion]:
        """Yield what became of the texts that are over, whose slots are free then."""
        over = [(slot, text) for slot, text in self._running if text.is_over]
        self._running = [(slot, text) for slot, text in self._running if not text.is_over]
        self._free += [slot for slot, _ in over]
        yield from (text.completed() for _, text in over)
