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
# And between two lines that a process of a build sends to the one that shows them.
SENT = 1.0
LONGEST_BAR, SHORTEST_BAR = 40, 8
DONE, LEFT = "━", "─"
CLEAR = "\r\x1b[K"


class Meter:
    """State of progress, by a clock in seconds: the stage, and how much of it is done.

    Attributes:
        detail: Tells what is done at the moment, where the stage does not say it.
    """

    detail: Callable[[], str] | None = None

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.steps(0)
        self.stage("")

    def steps(self, count: int) -> None:
        """Announce the number of stages that follow."""
        self._steps, self._step = count, 0

    def stage(
        self,
        name: str,
        total: int = 0,
        noun: str = "",
        *,
        already: int = 0,
        steady: bool = False,
    ) -> None:
        """Start the next stage; its total, if known, is of bytes, or of what the noun says.

        What is done already does not count for the pace. Of steady work the time left is shown.
        """
        self._step += 1
        self._name, self._total, self._noun = name, total, noun
        self._done, self._already, self._steady = already, already, steady
        self._began = self._now()

    def __call__(self, done: int) -> None:
        """Count what was done since the last call."""
        self._done += done

    def line(self) -> str:
        """Stage, share and time: ``[4/5] writing weights 45% of 2.00 GiB 00:20``."""
        share = f" {self._percent} of {self._counted(self._total)}" if self._total else ""
        return f"{self._title}{share} {self._time}{self._detail}"

    def drawn(self, width: int) -> str:
        """The line for a terminal: never wider than it is, with a bar where there is room."""
        facts = [self._percent, self._amount, self._pace] if self._total else []
        right = "  ".join(filter(None, [*facts, self._time]))
        left = text.elided(f"{self._title}{self._detail}", max(width - len(right) - 2, 1))
        room = min(width - text.width(left) - len(right) - 4, LONGEST_BAR)
        parts = [left, self._bar(room)] if self._total and room >= SHORTEST_BAR else [left]
        return text.elided("  ".join([*parts, right]), width)

    @property
    def _title(self) -> str:
        return f"[{self._step}/{self._steps}] {self._name}" if self._steps else self._name

    @property
    def _detail(self) -> str:
        told = self.detail() if self.detail is not None else ""
        return f"  {told}" if told else ""

    @property
    def _time(self) -> str:
        if self._steady and self._is_paced:
            return self._left
        return _clock(self._seconds)

    @property
    def _is_paced(self) -> bool:
        """Return whether enough was done to tell the pace."""
        return self._seconds >= 1 and self._done > self._already

    @property
    def _left(self) -> str:
        todo = max(self._total - self._done, 0)
        return f"{_clock(self._seconds * todo / (self._done - self._already))} left"

    @property
    def _seconds(self) -> float:
        return self._now() - self._began

    @property
    def _share(self) -> float:
        return min(self._done / self._total, 1.0)

    @property
    def _percent(self) -> str:
        return f"{int(100 * self._share)}%"

    @property
    def _amount(self) -> str:
        done = f"{self._done:,}" if self._noun else units.binary_size(self._done)
        return f"{done} of {self._counted(self._total)}"

    @property
    def _pace(self) -> str:
        """Speed; of what takes its time evenly, such as tokens, the time that is left instead."""
        if not self._is_paced:
            return ""
        if self._noun:
            return self._left
        return f"{units.binary_size(int((self._done - self._already) / self._seconds))}/s"

    def _counted(self, number: int) -> str:
        return units.plural(number, self._noun) if self._noun else units.binary_size(number)

    def _bar(self, length: int) -> str:
        done = int(self._share * length)
        return DONE * done + LEFT * (length - done)


def _clock(duration: float) -> str:
    minutes, seconds = divmod(int(duration), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:02}:{seconds:02}"


# What is given the lines of meters that nobody shows here.
_listeners: list[Callable[[str], None]] = []


@contextmanager
def listened(listener: Callable[[str], None]) -> Iterator[None]:
    """Give the lines of meters that are not shown to a function while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.pop()


@contextmanager
def unseen(meter: Meter) -> Iterator[None]:
    """Tell who listens of a meter while the block runs."""
    if not _listeners:
        yield
        return
    listener = _listeners[-1]
    with _each(SENT, lambda: listener(meter.line())):
        yield


@contextmanager
def shown(meter: Meter, stream: TextIO, width: Callable[[], int] | None) -> Iterator[None]:
    """Show a meter while the block runs; ``width`` is that of a terminal, None elsewhere."""

    def show() -> None:
        line = f"{meter.line()}\n" if width is None else f"{CLEAR}{meter.drawn(width() - 1)}"
        stream.write(line)
        stream.flush()

    try:
        with _each(SELDOM if width is None else OFTEN, show):
            yield
    finally:
        if width is not None:
            stream.write(CLEAR)
            stream.flush()


@contextmanager
def _each(seconds: float, work: Callable[[], None]) -> Iterator[None]:
    """Do some work again and again in a thread, while the block runs."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            work()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
