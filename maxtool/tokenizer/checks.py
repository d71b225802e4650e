"""Refusals of vocabularies that contradict themselves, with every finding, ten spelled out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from maxtool.errors import MalformedFile
from maxtool.tokenizer.vocabulary import TokenType

MAX_TOKENS = 1 << 24
MAX_TEMPLATE = 1 << 20
SHOWN = 10

File = str | Path | None


def refuse(problems: Sequence[str], what: str, file: File) -> None:
    """Raise MalformedFile if there are problems."""
    if problems:
        raise MalformedFile(what, file=file, problems=problems[:SHOWN])


def tokens(texts: Sequence[str], file: File) -> None:
    """Refuse a vocabulary that is empty, absurdly long, no text, or that holds a token twice."""
    if not texts or len(texts) > MAX_TOKENS:
        raise MalformedFile(f"a vocabulary of {len(texts)} tokens", file=file)
    _characters(texts, file)
    first: dict[str, int] = {}
    twice = [
        f"token {i} is {token!r} again (first at {first[token]})"
        for i, token in enumerate(texts)
        if first.setdefault(token, i) != i
    ]
    refuse(twice, f"{len(twice)} tokens occur twice", file)


def _characters(texts: Iterable[str], file: File) -> None:
    """Refuse halves of characters, which JSON can escape and no file can hold."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        what = f"half of a character is not a text: {error.object[error.start]!a}"
        raise MalformedFile(what, file=file) from None


def templates(texts: Mapping[str, str], file: File) -> None:
    """Refuse chat templates that are longer than any are, or no text."""
    _characters(texts.values(), file)
    sizes = {name: len(text.encode()) for name, text in texts.items()}
    wrong = [f"{name!r:.80}: {size} bytes" for name, size in sizes.items() if size > MAX_TEMPLATE]
    refuse(wrong, f"chat templates of more than {MAX_TEMPLATE} bytes", file)


def lengths(count: int, others: Mapping[str, int], file: File) -> None:
    """Refuse columns of another length than the tokens."""
    wrong = [f"{name}: {length}" for name, length in others.items() if length != count]
    refuse(wrong, f"{count} tokens, but other lengths beside them", file)


def ids(named: Mapping[str, int], size: int, file: File) -> None:
    """Refuse token ids outside the vocabulary."""
    wrong = [f"{name} is {i}" for name, i in named.items() if not 0 <= i < size]
    refuse(wrong, f"token ids outside the vocabulary of {size} tokens", file)


def scores(values: Sequence[float], file: File) -> None:
    """Refuse scores that are not finite, which no order can be made of."""
    wrong = [f"token {i}: {score}" for i, score in enumerate(values) if not math.isfinite(score)]
    refuse(wrong, "scores that are not finite", file)


def types(values: Sequence[int], file: File) -> tuple[TokenType, ...]:
    """The types, each a value of :class:`TokenType`."""
    known = {int(member): member for member in TokenType}
    wrong = [f"token {i}: {value}" for i, value in enumerate(values) if value not in known]
    refuse(wrong, "unknown token types", file)
    return tuple(known[int(value)] for value in values)
