"""Tokens that may come next in a text that follows a grammar, and the picking of one of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from .errors import DoesNotFit
from .memory import Array
from .sampling import Choose, Sampling, TokenSampler

MOST_SAID = 300
PARSER, CAUSE = "Parser Error: ", "failed to compile JSON schema: "
# Where its words end, and the place in a grammar, or in its own code, begins.
ENDS = re.compile(r"\n   1 \||<backtrace>|<non-verbose/>")
LARGE = re.compile(r"panic: .*symbols|Current row has .*items")


class Constraint:
    """The tokens that may come next in one text, which grows.

    Attributes:
        is_complete: Whether the text follows the schema, and nothing can be added to it.
    """

    def __init__(self, matcher: Callable[[], Any], count: int) -> None:
        """Begin a text; ``matcher`` gives one of its own, and tokens are those below ``count``."""
        self._fresh, self._count = matcher, count
        self.begin()

    def begin(self) -> None:
        """Begin another text, whatever became of the last."""
        self._matcher = self._fresh()  # to reset one would not clear its error
        self.is_complete = False

    def allowed(self) -> Array:
        """Ids of the tokens that may come next, ascending; an end of text only where it may end.

        Raises:
            DoesNotFit: If there are none, or the grammar is too complex to go on with.
        """
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        ids: Array = np.flatnonzero(np.unpackbits(bits, count=self._count, bitorder="little"))
        self._check()
        if not ids.size:
            raise DoesNotFit("no token of the model goes on with the JSON schema")
        return ids

    def push(self, token: int) -> None:
        """Take the next token."""
        self._matcher.consume_token(token)
        self._check()
        self.is_complete = self._matcher.is_stopped()

    def _check(self) -> None:
        if self._matcher.is_error():
            said = told(self._matcher.get_error())
            raise DoesNotFit(f"the JSON schema cannot be followed any further: {said}")


class ConstrainedSampler:
    """Picker of tokens as a sampler does, among those that a constraint allows."""

    def __init__(self, sampler: TokenSampler, constraint: Constraint) -> None:
        self._sampler, self._constraint = sampler, constraint

    def __call__(self, logits: Array, before: Sequence[int]) -> int:
        """Pick a token from the logits of all, and the tokens before it."""
        token = self._sampler.pick_among(self._constraint.allowed(), logits, before)
        self._constraint.push(token)
        return token


def until_complete(tokens: Iterable[int], constraint: Constraint | None) -> Iterator[int]:
    """Yield tokens until nothing can be added to what they write."""
    for token in tokens:
        yield token
        if constraint is not None and constraint.is_complete:
            return


def picker(sampling: Sampling, constraint: Constraint | None) -> Choose:
    """Return what picks tokens, among those that a constraint allows if there is one."""
    sampler = TokenSampler(sampling)
    return sampler if constraint is None else ConstrainedSampler(sampler, constraint)


def told(error: str) -> str:
    """The words of llguidance, without the place in a grammar that the user has not written."""
    told = ENDS.split(error, maxsplit=1)[0].partition(CAUSE)
    said = " ".join((told[2] or told[0]).split())
    if said.startswith("NoExtension"):
        return "nothing can be written that follows it"
    if LARGE.match(said.removeprefix(PARSER)):
        return "it is too large: it allows too many things at one place, or in all"
    if said.startswith("panic: "):
        return "llguidance fails with it"
    return said if len(said) <= MOST_SAID else f"{said[:MOST_SAID]}..."
