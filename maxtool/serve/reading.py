"""Reading of requests: their bodies, and the threads that make of them what is asked for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import Request

from maxtool.runtime.loader import RunError
from maxtool.serve.fields import parsed
from maxtool.serve.limits import Limits
from maxtool.serve.refusal import Refusal, busy, refusal_of, stopping, too_slow

T = TypeVar("T")
Content: TypeAlias = Mapping[str, Any]
JSON = "application/json"
MOST_COMPILES = 16  # requests whose schemas are compiled, or wait for it


def nothing(_: Content) -> bool:
    """Say of a request that no schema is compiled for it."""
    return False


class Reading:
    """The reading of requests, as many at a time as limits say."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        cores = os.cpu_count() or 1
        # Threads that read requests: parsing, rendering of templates and tokenizers take time. To
        # compile a schema takes seconds, for which requests without one do not wait.
        self._readers = CapacityLimiter(max(2, cores))
        self._compilers = CapacityLimiter(max(1, cores // 2))
        self._read = _Count(limits.queue)  # whose bodies are in memory, and not yet understood
        self._compiled = _Count(MOST_COMPILES)
        self._coming = set[asyncio.Timeout]()  # bodies
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False

    def stop(self) -> None:
        """Read no more; bodies that are still coming are refused. Any thread may call it."""
        self._stopping = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end_bodies)

    def _end_bodies(self) -> None:
        for body in self._coming:
            if not body.expired():
                body.reschedule(0)

    async def made(
        self,
        request: Request,
        make: Callable[[Content], T],
        compiles: Callable[[Content], bool] = nothing,
    ) -> T:
        """Return what is made of a request's JSON, in another thread.

        Args:
            request: The request.
            make: Makes it.
            compiles: Says of the JSON whether a schema is compiled for it.

        Raises:
            Refusal: If there are too many, it is not JSON, is too slow, or ``make`` refuses it.
        """
        kind, _, _ = request.headers.get("content-type", "").partition(";")
        if kind.strip().lower() != JSON:
            # A page of anybody's may send other types without asking first.
            raise Refusal(415, f"the Content-Type must be {JSON}")
        with self._read.one_more():
            try:
                async with asyncio.timeout(self._limits.seconds):
                    body = await self._body(request)
                    begin = partial(_begun, body, make, compiles)
                    begun = await run_sync(begin, limiter=self._readers)
                    if isinstance(begun, _Made):
                        return begun.value
                    with self._compiled.one_more():
                        return await run_sync(begun, limiter=self._compilers)
            except TimeoutError:
                raise too_slow() from None

    async def _body(self, request: Request) -> bytes:
        """The body of a request, refused as soon as it is too long, or comes too slowly."""
        body, closing = bytearray(), {"Connection": "close"}
        try:
            async with self._bounded():
                async for part in request.stream():
                    body += part
                    if len(body) > self._limits.body:
                        what = f"the body has more than {self._limits.body} bytes (--max-body)"
                        raise Refusal(413, what, code="body_too_large", headers=closing)
        except TimeoutError:
            if self._stopping:
                raise stopping() from None
            what = f"the body took more than {self._limits.read_seconds:g} s to come"
            raise Refusal(408, what, code="body_too_slow", headers=closing) from None
        return bytes(body)

    @asynccontextmanager
    async def _bounded(self) -> AsyncIterator[None]:
        """Bound the time of the block: by the limit, and until reading stops."""
        self._loop = asyncio.get_running_loop()
        if self._stopping:
            raise stopping()
        async with asyncio.timeout(self._limits.read_seconds) as bound:
            self._coming.add(bound)
            try:
                yield
            finally:
                self._coming.discard(bound)


@dataclass(frozen=True)
class _Made(Generic[T]):
    """Result of the first step."""

    value: T


class _Count:
    """Count of requests of some kind, of which there may be ``most``."""

    def __init__(self, most: int) -> None:
        self._most, self._now = most, 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count one while the block runs; refuse it where it is one too many."""
        if self._now >= self._most:
            raise busy(self._now, self._most)
        self._now += 1
        try:
            yield
        finally:
            self._now -= 1


def _begun(
    body: bytes, make: Callable[[Content], T], compiles: Callable[[Content], bool]
) -> _Made[T] | Callable[[], T]:
    """Make of a body what it asks for; or, where that takes long, return what makes it."""
    content = parsed(body)
    later = partial(_telling, make, content)
    return later if _telling(compiles, content) else _Made(later())


def _telling(make: Callable[[Content], T], content: Content) -> T:
    """Make something of a request, and tell the client of errors."""
    try:
        return make(content)
    except RunError as error:
        raise refusal_of(error) from None
