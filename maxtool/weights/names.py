"""Tensor names: their natural order, the part below a prefix, and near misses."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_DIGITS = re.compile(r"(\d+)")
# Near misses are searched among this many names at most; the search compares with each of them.
MAX_COMPARED = 20_000
# Digits beyond this are compared as text: a name must not make us build a huge integer.
MAX_DIGITS = 18

NaturalKey = tuple[tuple[int, int, str], ...]


def natural_key(name: str) -> NaturalKey:
    """A sort key under which ``layers.2`` comes before ``layers.10``."""
    parts = _DIGITS.split(name)
    return tuple(
        (0, int(part), part) if index % 2 and len(part) <= MAX_DIGITS else (1, 0, part)
        for index, part in enumerate(parts)
    )


def is_below(name: str, prefix: str) -> bool:
    """Whether ``name`` is ``prefix`` or continues it by whole dotted segments."""
    return not prefix or name == prefix or name.startswith(f"{prefix}.")


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A sentence that offers the names closest to ``name``, or ``None`` if none is close."""
    compared = [candidate for candidate, _ in zip(known, range(MAX_COMPARED), strict=False)]
    close = difflib.get_close_matches(name, compared, n=3, cutoff=0.6)
    if not close:
        return None
    return f"did you mean {' or '.join(repr(candidate) for candidate in close)}?"
