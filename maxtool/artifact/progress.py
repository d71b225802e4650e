"""Progress reports of a compilation, and the time of each stage."""

from __future__ import annotations

import os
from time import process_time
from typing import Protocol


class Progress(Protocol):
    """Receiver of progress reports."""

    def steps(self, count: int) -> None:
        """Announce the number of stages that follow."""

    def stage(self, name: str, nbytes: int = 0) -> None:
        """A stage begins, which is to do that many bytes, if it does any."""

    def __call__(self, done: int) -> None:
        """Count bytes of the stage that were read, written or hashed since the last call."""


class SilentProgress:
    """Progress that reports nothing."""

    def steps(self, count: int) -> None:
        """Ignore the number of stages."""

    def stage(self, name: str, nbytes: int = 0) -> None:
        """Ignore the number of stages."""

    def __call__(self, done: int) -> None:
        """Ignore the number of stages."""


class StageClock:
    """CPU seconds of each stage, of all threads and of the programs that were run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = _seconds()

    def lap(self, stage: str) -> None:
        """Record the end of a stage."""
        now = _seconds()
        self.seconds[stage] = now - self._last
        self._last = now


def _seconds() -> float:
    others = os.times()
    return process_time() + others.children_user + others.children_system
