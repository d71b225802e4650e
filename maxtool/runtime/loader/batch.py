"""Generation for many prompts: as many side by side as the state has slots.

A slot whose text has ended takes the next prompt at once, while the others go on. What is made of a
prompt does not depend on the others, nor on its slot, but for rounding: a call for several rows may
add up numbers in another order than a call for one. With bfloat16 matrices on CPUs that multiply
pairs of such numbers, a call for several rows also rounds activations to bfloat16, which moves
logits by some thousandths, so that a drawn text may be another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from .continued_text import Text
from .errors import RunError
from .model import Model
from .prompts import MAX_TOKENS, Completion, Prompt
from .sampling import Sampling
from .side_by_side import SideBySide


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
    return _together(SideBySide(model), texts)


def begun(model: Model, index: int, prompt: Prompt) -> Begun:
    """A text, or what became of a prompt that cannot be continued."""
    try:
        return Text(model, index, prompt)
    except RunError as error:
        return refused(index, prompt, error)


def refused(index: int, prompt: Prompt, error: RunError) -> Completion:
    """Outcome of a prompt that cannot be continued."""
    return Completion(index, prompt, (), (), "", "error", error)


Begun: TypeAlias = Text | Completion


def _alone(model: Model, text: Begun) -> Completion:
    """Continue a text where the state holds a single one."""
    if isinstance(text, Completion):
        return text
    with text.keeping_errors():
        for token in model.session().generate(text.reply.ids, text.count, text.choose):
            text.push(token)
            if text.is_over:
                break
    return text.completed()


def _together(places: SideBySide, waiting: Iterator[Begun]) -> Iterator[Completion]:
    """Yield what became of each text, as they end: as many go on at once as there are slots."""
    while True:
        yield from _fill(places, waiting)
        if not places.running:
            return
        places.step()
        yield from _ended(places)


def _fill(places: SideBySide, waiting: Iterator[Begun]) -> Iterator[Completion]:
    """Give free slots to texts that wait; yield those that need none.

    The texts that are running make a token behind each of these, however many follow.
    """
    while places.has_room and (text := next(waiting, None)) is not None:
        if isinstance(text, Text) and not text.is_over:
            places.begin(text)
            continue
        yield text if isinstance(text, Completion) else text.completed()
        if places.running:
            return


def _ended(places: SideBySide) -> Iterator[Completion]:
    """Yield what became of the texts that are over, whose slots are free then."""
    over = [text for text in places.running if text.is_over]
    for text in over:
        places.end(text)
    yield from (text.completed() for text in over)
