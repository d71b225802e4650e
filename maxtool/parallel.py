"""Work on large arrays in parts that fit a core's cache, on a few threads where that pays.

NumPy lets go of the interpreter lock while it computes, so threads run side by side.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from itertools import chain, islice
from types import TracebackType
from typing import NoReturn, TypeVar

import numpy as np

Result = TypeVar("Result")

# With more, they mostly wait for the interpreter lock.
MAX_THREADS = 2
# Threads work on larger parts than one thread alone, as they hand each other the lock for each
# operation of NumPy; and with fewer than two parts for each they cost more than they save.
THREAD_PARTS = 4
# Calls that may wait while their caller goes on: what they were given stays in memory.
BEHIND = 2

# glibc's DEFAULT_MMAP_THRESHOLD_MAX, less its own header and a page.
LEARNT_FROM = (32 << 20) - (8 << 10)

# What a thread of :func:`in_order` is told apart by.
_local = threading.local()


def usable_cores() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_parts(
    total: int, step: int, work: Callable[[slice], Result], *, threads: int = MAX_THREADS
) -> list[Result]:
    """Call ``work`` for every slice of ``step`` items, on several threads if there are many.

    Args:
        total: How many items there are.
        step: How many of them a part has; the last has fewer, and those of threads have more.
        work: Must not depend on the order of the parts. Thread-local settings such as
            ``numpy.errstate`` are made inside it.
        threads: At most so many, and one within a call of :func:`in_order`; 1 where the operations
            are so short that threads spend what they gain on the interpreter lock, as in casts and
            in encoding without a search.

    Returns:
        The results, those of each thread together. What ``work`` raises is raised when all threads
        have ended.
    """
    _keep_freed_memory()
    most = 1 if getattr(_local, "works", False) else usable_cores()
    threads = min(threads, most, total // (2 * THREAD_PARTS * step))
    if threads < 2:
        return [work(part) for part in _parts(total, step)]
    parts = _parts(total, THREAD_PARTS * step)
    with ThreadPoolExecutor(threads) as pool:
        shares = [
            pool.submit(lambda share: [work(part) for part in share], parts[first::threads])
            for first in range(threads)
        ]
        return [result for share in shares for result in share.result()]


def in_order(calls: Iterable[Callable[[], Result] | None], threads: int) -> Generator[Result]:
    """Make calls on ``threads`` threads, and yield what they return in their order.

    As many more are made ahead, and ``calls`` is iterated by the thread that asks for results.
    Where it gives None, it goes on once all results before that have been taken. What a call, or
    ``calls``, raises is raised in its place: of several errors the first is told, whatever the
    number of threads. A call that is the only one is made by the thread that asks. Close the
    iterator to end the threads before it is exhausted.
    """
    _keep_freed_memory()
    steps = _failing_in_place(calls)
    first = list(islice(steps, 2))
    if len(first) < 2:
        yield from (call() for call in first if call is not None)
        return
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads, initializer=_begin_work)
    try:
        for call in chain(first, steps):
            while waiting and (call is None or len(waiting) >= 2 * threads):
                yield waiting.popleft().result()
            if call is not None:
                waiting.append(pool.submit(call))
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _failing_in_place(
    calls: Iterable[Callable[[], Result] | None],
) -> Iterator[Callable[[], Result] | None]:
    """The same calls; where getting the next one fails, a call that raises that."""
    try:
        yield from calls
    except Exception as error:
        yield partial(_fail, error)


def _fail(error: Exception) -> NoReturn:
    raise error


def _begin_work() -> None:
    _local.works = True


class Behind:
    """A thread that makes calls in their order, at most a few behind the one that asks for them.

    Within a ``with`` block. What a call raises is raised by a later :meth:`call`, by :meth:`finish`
    or at the end of the block; where the block fails, calls that have not begun are dropped.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._waiting: deque[Future[object]] = deque()

    def call(self, work: Callable[[], object]) -> None:
        """Have ``work`` called, once fewer than ``BEHIND`` calls wait."""
        while len(self._waiting) >= BEHIND:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(work))

    def finish(self) -> None:
        """Wait for all calls."""
        while self._waiting:
            self._waiting.popleft().result()

    def __enter__(self) -> Behind:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self._pool.shutdown(cancel_futures=True)


def _parts(total: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, total)) for start in range(0, total, step)]


@cache
def _keep_freed_memory() -> None:
    """Tell the C library to keep freed memory for the next temporary array.

    Otherwise the system hands out, clears and takes back pages for each, which costs more than the
    arithmetic. The GNU C library learns from this block, the largest it learns from, which is never
    touched: blocks up to its size come from memory that is kept, up to twice as much of it. Other
    libraries take no harm.
    """
    np.empty(LEARNT_FROM, np.uint8)
