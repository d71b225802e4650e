"""Progress of a long command: a line drawn again and again on a terminal, a few elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from maxtool.cli import text, units

# Seconds between two drawings on a terminal, and between two lines elsewhere.
OFTEN, SELDOM = 0.1, 10.0
LONGEST_BAR, SHORTEST_BAR = 40, 8
DONE, LEFT = "━", "─"
CLEAR = "\r\x1b[K"


class Meter:
    """State of progress, by a clock in seconds: the stage, and its bytes."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.steps(0)
        self.stage("")

    def steps(self, count: int) -> None:
        """Announce the number of stages that follow."""
        self._steps, self._step = count, 0

    def stage(self, name: str, nbytes: int = 0) -> None:
        """Start the next stage, with its number of bytes, if that is known."""
        self._step += 1
        self._name, self._nbytes = name, nbytes
        self._done, self._began = 0, self._now()

    def __call__(self, done: int) -> None:
        """Count bytes that were done since the last call."""
        self._done += done

    def line(self) -> str:
        """Stage, share and time: ``[4/5] writing weights 45% of 2.00 GiB 00:20``."""
        whole = units.binary_size(self._nbytes)
        share = f" {self._percent} of {whole}" if self._nbytes else ""
        return f"{self._title}{share} {self._time}"

    def drawn(self, width: int) -> str:
        """The line for a terminal: never wider than it is, with a bar where there is room."""
        facts = [self._percent, self._amount, self._rate] if self._nbytes else []
        right = "  ".join(filter(None, [*facts, self._time]))
        left = text.elided(self._title, max(width - len(right) - 2, 1))
        room = min(width - text.width(left) - len(right) - 4, LONGEST_BAR)
        parts = [left, self._bar(room)] if self._nbytes and room >= SHORTEST_BAR else [left]
        return text.elided("  ".join([*parts, right]), width)

    @property
    def _title(self) -> str:
        return f"[{self._step}/{self._steps}] {self._name}" if self._steps else self._name

    @property
    def _time(self) -> str:
        minutes, seconds = divmod(int(self._seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:02}:{seconds:02}"

    @property
    def _seconds(self) -> float:
        return self._now() - self._began

    @property
    def _share(self) -> float:
        return min(self._done / self._nbytes, 1.0)

    @property
    def _percent(self) -> str:
        return f"{int(100 * self._share)}%"

    @property
    def _amount(self) -> str:
        return f"{units.binary_size(self._done)} of {units.binary_size(self._nbytes)}"

    @property
    def _rate(self) -> str:
        seconds = self._seconds
        return f"{units.binary_size(int(self._done / seconds))}/s" if seconds >= 1 else ""

    def _bar(self, length: int) -> str:
        done = int(self._share * length)
        return DONE * done + LEFT * (length - done)


@contextmanager
def shown(meter: Meter, stream: TextIO, width: Callable[[], int] | None) -> Iterator[None]:
    """Show a meter while the block runs; ``width`` is that of a terminal, None elsewhere."""
    ended = threading.Event()

    def show() -> None:
        while not ended.wait(SELDOM if width is None else OFTEN):
            line = f"{meter.line()}\n" if width is None else f"{CLEAR}{meter.drawn(width() - 1)}"
            stream.write(line)
            stream.flush()

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if width is not None:
            stream.write(CLEAR)
            stream.flush()
