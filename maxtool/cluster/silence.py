"""Silence on stdout, which Ray's threads write to whatever they are asked.

A raylet's word on a worker that died goes there, beside the JSON of a command. What is lost is told
by whoever waits for the task.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# How the names of Ray's threads begin.
RAYS = "ray_"


class _Filter:
    """A stream to which Ray's threads write in vain; and nobody else gets through if ``shut``."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - whatever stdout is
        self._stream = stream
        self.shut = False

    def write(self, text: str) -> int:
        """Write a text, unless it is Ray's."""
        if self.shut or threading.current_thread().name.startswith(RAYS):
            return len(text)
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Return what else the stream has."""
        return getattr(self._stream, name)


@contextmanager
def silenced() -> Iterator[_Filter]:
    """Keep Ray's threads from stdout while the block runs."""
    before = sys.stdout
    sys.stdout = stream = _Filter(before)
    try:
        yield stream
    finally:
        sys.stdout = before
