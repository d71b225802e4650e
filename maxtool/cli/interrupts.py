"""Ctrl-C and its kin: while work is done they are KeyboardInterrupt, otherwise the end at once.

While modules are imported, and when all is done, there is nothing to undo and nobody to tell, and
an exception would come out of whatever happens to run: a traceback of somebody else's code.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130
# Windows has no SIGHUP.
KINDS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
# What a process starts with; anything else was chosen by whoever started it, as nohup does.
INITIAL = (signal.SIG_DFL, signal.default_int_handler)


def end_at_once() -> None:
    """End this process silently at an interrupt, with the documented exit code."""
    for signal_number in KINDS:
        if signal.getsignal(signal_number) in INITIAL:
            signal.signal(signal_number, _end)


@contextmanager
def raised() -> Iterator[None]:
    """Raise KeyboardInterrupt instead, where :func:`end_at_once` was called before."""
    ours = [kind for kind in KINDS if signal.getsignal(kind) is _end]
    try:
        for signal_number in ours:
            signal.signal(signal_number, signal.default_int_handler)
        yield
    finally:
        for signal_number in ours:
            signal.signal(signal_number, _end)


def _end(*_: object) -> None:
    os._exit(INTERRUPTED)
