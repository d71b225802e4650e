"""Progress reports of a compilation, and the time of each stage."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import process_time, thread_time
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
    """CPU seconds of each stage and of the programs it ran.

    While other threads work beside it, a stage is what its own thread does.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._now: Callable[[], float] = thread_time
        self._began, self._last = _seconds(process_time), _seconds(thread_time)

    def lap(self, stage: str) -> None:
        """Record the end of a stage."""
        now = _seconds(self._now)
        self.seconds[stage] = now - self._last
        self._last = now

    def joined(self, stage: str) -> None:
        """Record what the other threads did, which have ended; stages have all threads from now."""
        self._now, self._last = process_time, _seconds(process_time)
        self.seconds[stage] = self._last - self._began - sum(self.seconds.values())


def _seconds(own: Callable[[], float]) -> float:
    others = os.times()
    return own() + others.children_user + others.children_system
