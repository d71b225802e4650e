"""A thread that answers requests of texts one after the other, and those who wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, TypeAlias

from maxtool.runtime.loader import RunError
from maxtool.serve.refusal import busy, refusal_of, too_slow

# What makes the JSON of an answer of a request's content, in the thread; the second argument is to
# be called between two batches, and ends the work by what it raises.
Made: TypeAlias = Callable[[Mapping[str, Any], Callable[[], None]], dict[str, object]]


class Turns:
    """One request at a time; ``most`` of them may be there, that which is answered included."""

    def __init__(self, name: str, most: int) -> None:
        self._most, self._waiting = most, 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def answer(
        self, made: Made, content: Mapping[str, Any], seconds: float
    ) -> dict[str, object]:
        """The JSON that answers a request, when its turn has come."""
        if self._waiting >= self._most:
            raise busy(self._waiting, self._most)
        left = Event()
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._thread, _wanted, made, content, left)
        self._waiting += 1
        try:
            return await asyncio.wait_for(work, seconds)
        except TimeoutError:
            raise too_slow() from None
        finally:
            left.set()
            self._waiting -= 1

    def stop(self) -> None:
        """End the thread; what waits for it is not begun."""
        self._thread.shutdown(cancel_futures=True)


def _wanted(made: Made, content: Mapping[str, Any], left: Event) -> dict[str, object]:
    """An answer, given up between two batches once nobody waits for it."""

    def go_on() -> None:
        if left.is_set():
            raise too_slow()

    try:
        return made(content, go_on)
    except RunError as error:
        raise refusal_of(error) from None
