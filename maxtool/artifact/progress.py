"""What a compilation tells while it runs, and how long its stages take."""

from __future__ import annotations

import os
from time import process_time
from typing import Protocol


class Progress(Protocol):
    """Who is told what is being done."""

    def steps(self, count: int) -> None:
        """So many stages follow."""

    def stage(self, name: str, nbytes: int = 0) -> None:
        """A stage begins, which is to do that many bytes, if it does any."""

    def __call__(self, done: int) -> None:
        """Count bytes of the stage that were read, written or hashed since the last call."""


class Silent:
    """Nobody is told."""

    def steps(self, count: int) -> None:
        """Nothing."""

    def stage(self, name: str, nbytes: int = 0) -> None:
        """Nothing."""

    def __call__(self, done: int) -> None:
        """Nothing."""


class Clock:
    """CPU seconds of each stage, of all threads and of the programs that were run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = _seconds()

    def lap(self, stage: str) -> None:
        """Say that a stage has ended."""
        now = _seconds()
        self.seconds[stage] = now - self._last
        self._last = now


def _seconds() -> float:
    others = os.times()
    return process_time() + others.children_user + others.children_system
