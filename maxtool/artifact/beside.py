"""Work beside the compiler: a thread that writes and hashes while code is generated."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from threading import Event
from types import TracebackType
from typing import Generic, TypeAlias, TypeVar

Result = TypeVar("Result")
CountBytes: TypeAlias = Callable[[int], None]


class _Stopped(Exception):
    """End of work that nobody waits for any more."""


class Job(Generic[Result]):
    """Work that was begun, and the bytes it has done so far."""

    def __init__(
        self, pool: ThreadPoolExecutor, stopped: Event, work: Callable[[CountBytes], Result]
    ) -> None:
        self._stopped = stopped
        self._counted = SimpleQueue[int | None]()
        self._future: Future[Result] = pool.submit(self._run, work)

    def result(self, progress: CountBytes) -> Result:
        """Wait for what the work returns or raises; ``progress`` is told the bytes that it does."""
        while (done := self._counted.get()) is not None:
            progress(done)
        return self._future.result()

    def _run(self, work: Callable[[CountBytes], Result]) -> Result:
        try:
            return work(self._count)
        finally:
            self._counted.put(None)

    def _count(self, done: int) -> None:
        if self._stopped.is_set():
            raise _Stopped
        self._counted.put(done)


class Beside:
    """A thread for one job after the other, which has ended when the block has.

    Where the block ends early, the job at work stops at the next bytes that it counts.
    """

    def __init__(self) -> None:
        self._pool, self._stopped = ThreadPoolExecutor(1), Event()

    def begin(self, work: Callable[[CountBytes], Result]) -> Job[Result]:
        """Start work as soon as what was begun before has ended."""
        return Job(self._pool, self._stopped, work)

    def __enter__(self) -> Beside:
        return self

    def __exit__(
        self,
        _class: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)
