"""Work on large arrays in parts that fit a core's cache, on a few threads where that pays.

NumPy lets go of the interpreter lock while it computes, so threads run side by side.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

# More threads than this wait for memory and for the interpreter lock.
MAX_THREADS = 4
# A thread that does fewer parts than this costs more than it saves.
MIN_PARTS = 8


def usable_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_parts(total: int, step: int, work: Callable[[slice], Result]) -> list[Result]:
    """Call ``work`` for every slice of ``step`` items, on several threads if there are many.

    Args:
        total: How many items there are.
        step: How many of them one part has; the last one may have fewer.
        work: Must not depend on the order of the parts. Thread-local settings such as
            ``numpy.errstate`` are made inside it.

    Returns:
        The results, those of each thread together.

    Raises:
        Exception: What ``work`` raises, when all threads have ended.
    """
    parts = [slice(start, min(start + step, total)) for start in range(0, total, step)]
    threads = min(MAX_THREADS, usable_cores(), len(parts) // MIN_PARTS)
    if threads < 2:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        shares = [
            pool.submit(lambda share: [work(part) for part in share], parts[first::threads])
            for first in range(threads)
        ]
        return [result for share in shares for result in share.result()]
