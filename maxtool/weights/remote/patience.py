"""Another attempt where a server fails for a while, after as long as it asks to wait."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import TypeVar

from maxtool.errors import TransferFailed

# Seconds before each further attempt, where the server does not say how many.
WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
LONGEST = 300.0

T = TypeVar("T")


def patiently(work: Callable[[], T], stopped: Event, *, where_asked: bool = False) -> T:
    """Do some work, again where it raises ``TransferFailed``; the last failure is raised.

    Args:
        work: The work.
        stopped: Set once nobody waits for it any more.
        where_asked: Whether to try again only where the server says when.
    """
    for pause in WAITS:
        try:
            return work()
        except TransferFailed as error:
            wait = pause if error.wait is None else error.wait
            if wait > LONGEST or (error.wait is None and where_asked) or stopped.wait(wait):
                raise
    return work()
