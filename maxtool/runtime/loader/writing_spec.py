"""Tokens by which a model writes one text behind another, as the manifest says them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .manifest_fields import token, tokens

NUMBERS = ("no_repeat", "least", "most")  # of tokens, from 1 up


@dataclass(frozen=True)
class WritingSpec:
    """Tokens before a text and at its ends, and those that are not written."""

    start: int  # before every text
    ends: tuple[int, ...] = ()  # behind it
    forced_first: int | None = None  # the first token behind the one before all
    forced_last: tuple[int, ...] = ()  # the last one, where a text is as long as it may be
    suppressed: tuple[int, ...] = ()  # never written
    suppressed_first: tuple[int, ...] = ()  # never written first
    no_repeat: int | None = None  # tokens in a row that no text has twice
    least: int | None = None  # tokens before the end, the one before all included
    most: int | None = None  # tokens of a text, where no number is asked for

    @property
    def tokens(self) -> Iterator[int]:
        """All tokens that are named."""
        yield self.start
        yield from (*self.ends, *self.forced_last, *self.suppressed, *self.suppressed_first)
        if self.forced_first is not None:
            yield self.forced_first


def writing_spec(item: Mapping[str, Any]) -> WritingSpec:
    """The tokens that a manifest says; ValueError that names what is wrong."""
    start = token(item, "start")
    if start is None:
        raise ValueError("'start' is not there")
    counts = {name: token(item, name) for name in NUMBERS}
    if zero := [name for name, count in counts.items() if count == 0]:
        raise ValueError(f"{zero[0]!r} is 0")
    return WritingSpec(
        start=start,
        ends=tokens(item, "ends"),
        forced_first=token(item, "forced_first"),
        forced_last=tokens(item, "forced_last"),
        suppressed=tokens(item, "suppressed"),
        suppressed_first=tokens(item, "suppressed_first"),
        **counts,
    )
