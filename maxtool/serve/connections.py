"""Connections of clients: how many there may be, and how long each may take to ask."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from maxtool.serve.limits import Limits
from maxtool.serve.refusal import SERVER, Refusal

FULL = Refusal(503, "the server has as many connections as it may", SERVER, code="connections_full")


class Connection(H11Protocol):
    """Connection that is closed where the head of a request does not come in time.

    Where there are too many, that is closed which has waited longest for its first, so that clients
    which say nothing keep nobody out; the new one is, where all others have asked for something.

    uvicorn closes one that sends nothing behind an answer, but waits for ever where nothing was
    answered yet, or where a client sends a byte now and then.

    Attributes:
        began: When it was made, on the clock of the loop.
    """

    def __init__(self, limits: Limits, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
        """Begin; other arguments are uvicorn's."""
        super().__init__(*arguments, **named)
        self._limits = limits
        self._deadline: asyncio.TimerHandle | None = None
        self.began = 0.0
        self._asked: object = None  # the last request whose head was there

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request; refuse a client where there are too many."""
        super().connection_made(transport)
        self.began = self.loop.time()
        self._wait()
        if len(self.connections) > self._limits.connections:
            known = (one for one in self.connections if isinstance(one, Connection))
            min((one for one in known if one.is_silent), key=_began).refuse()

    @property
    def is_silent(self) -> bool:
        """Flag of one that is open, and whose first request has no head yet."""
        return self._asked is None and not self.transport.is_closing()

    def refuse(self) -> None:
        """Close it, and say why."""
        self._stop_waiting()
        self.transport.write(_written(FULL))
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request, which may be there."""
        self._wait()
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(self._limits.read_seconds, self.transport.abort)

    def _look(self) -> None:
        """Stop waiting where the head of a request is there that was not there before."""
        if self.cycle is not self._asked:
            self._asked = self.cycle
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _began(connection: Connection) -> float:
    return connection.began


def _written(refusal: Refusal) -> bytes:
    """The answer to a client whose request was not read."""
    body = json.dumps(refusal.content()).encode()
    head = (
        f"HTTP/1.1 {refusal.status} Service Unavailable",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Retry-After: 1",
        "Connection: close",
    )
    return "\r\n".join([*head, "", ""]).encode() + body
