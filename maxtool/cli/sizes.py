"""Sizes of files as users write them: ``5GB``, ``500MiB``, ``2G``, or bytes."""

from __future__ import annotations

import re

from maxtool.errors import UsageError

SIZE = re.compile(
    r"(?P<number>\d{1,15}(\.\d{1,9})?) ?(?P<unit>[kmgt]?)(?P<binary>i?)b?", re.IGNORECASE
)
POWERS = ("", "k", "m", "g", "t")


def parse_size(text: str | None, option: str) -> int | None:
    """The bytes that a size says: units are of 1000, those with an ``i`` of 1024; None stays."""
    if text is None:
        return None
    match = SIZE.fullmatch(text.strip())
    base = 1024 if match and match["binary"] else 1000
    nbytes = (
        int(float(match["number"]) * base ** POWERS.index(match["unit"].lower())) if match else 0
    )
    if nbytes < 1:
        raise UsageError(f"{option} takes a size such as 5GB, 500MiB or 2G, not {text!r:.80}")
    return nbytes
