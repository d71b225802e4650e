"""Prompts to be continued side by side, and what becomes of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .errors import RunError
from .sampling import Sampling

if TYPE_CHECKING:
    from .json_schema import Grammar
    from .placed_images import PlacedImage

MAX_TOKENS = 100  # where nothing else is asked for


@dataclass(frozen=True)
class Prompt:
    """A text to continue, and how.

    Attributes:
        text: The text, or its token ids.
        max_tokens: How many tokens to make at most.
        sampling: How they are picked. With a seed they are those that the prompt would get alone,
            but for rounding.
        stops: Strings before which the continuation ends, or a single one.
        alone: Whether what follows is a text of its own, as a reply is.
        grammar: What the continuation follows, if anything: :meth:`Grammars.grammar` compiles it.
        images: Those that stand among token ids, as :meth:`Model.illustrated` gives both.
    """

    text: str | Sequence[int]
    max_tokens: int = MAX_TOKENS
    sampling: Sampling = field(default_factory=Sampling)
    stops: Sequence[str] = ()
    alone: bool = False
    grammar: Grammar | None = None
    images: Sequence[PlacedImage] = ()


@dataclass(frozen=True)
class Completion:
    """Outcome of a prompt.

    Attributes:
        index: Which of the prompts it was, counted from 0.
        prompt: The prompt.
        prompt_ids: Its tokens; none where it was refused before it had any.
        ids: The tokens behind it.
        text: Their text, without what ended it.
        stopped: Why it ended: ``stop``, ``context``, ``length``, ``end``, or ``error``.
        error: What kept it from being continued, or from ending otherwise.
    """

    index: int
    prompt: Prompt
    prompt_ids: Sequence[int]
    ids: Sequence[int]
    text: str
    stopped: str
    error: RunError | None = None
