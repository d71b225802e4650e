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

    uvicorn closes one that sends nothing behind an answer, but waits for ever where nothing was
    answered yet, or where a client sends a byte now and then.
    """

    def __init__(self, limits: Limits, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
        """Begin; other arguments are uvicorn's."""
        super().__init__(*arguments, **named)
        self._limits = limits
        self._deadline: asyncio.TimerHandle | None = None
        self._asked: object = None  # the last request whose head was there

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request; refuse the client where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            transport.write(_written(FULL))
            transport.close()
        else:
            self._wait()

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
