"""What a compilation tells while it runs, and how long its stages take."""

from __future__ import annotations

import os
from time import process_time
from typing import Protocol


class Progress(Protocol):
    """Who is told what is being done."""

    def __call__(self, done: int) -> None:
        """That many bytes were read, written or hashed since the last call."""

    def stage(self, name: str) -> None:
        """Something else begins."""


class Silent:
    """Nobody is told."""

    def __call__(self, done: int) -> None:
        """Nothing."""

    def stage(self, name: str) -> None:
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
