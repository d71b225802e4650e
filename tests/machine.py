"""Limits of time that mean the same on fast and slow machines, and on a machine that varies."""

from __future__ import annotations

import time

# What `spin` takes on the machine whose seconds the limits are given in.
NOMINAL = 0.05


def spin() -> float:
    """Seconds of processor time that a fixed piece of plain Python takes here and now."""
    started, total = time.process_time(), 0
    for number in range(1_000_000):
        total = (total + number) & 0xFFFF
    return time.process_time() - started


class Stopwatch:
    """Processor time of a ``with`` block, in seconds of the nominal machine."""

    def __enter__(self) -> Stopwatch:
        self._before, self._started = spin(), time.process_time()
        return self

    def __exit__(self, *_error: object) -> None:
        taken = time.process_time() - self._started
        self.seconds = taken * NOMINAL / max(self._before, spin())
