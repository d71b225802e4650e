"""The guard before all requests: the key, and the form of errors."""

from __future__ import annotations

import asyncio
import hmac
import sys
import time

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from maxtool.serve.metrics import Metrics
from maxtool.serve.refusal import KEY, SERVER, Refusal, stopping

OPEN = {"/", "/health"}  # what needs no key
KNOWN = {
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/models",
    "/metrics",
    *OPEN,
}


class Guard:
    """Middleware that asks for the key, counts answers, and lets no exception through."""

    def __init__(self, app: ASGIApp, key: str | None, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics
        self._key = None if key is None else key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        statuses: list[int] = []
        began = time.monotonic()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        try:
            await self._answered(scope, receive, counted)
        except asyncio.CancelledError:  # only a server that stops does that, when time is up
            if statuses:
                raise
            await answer_of(stopping())(scope, receive, counted)
        except Exception as error:
            sys.stderr.write(f"error: {scope['path']!r:.80}: {error!r:.500}\n")
            if not statuses:
                failed = Refusal(500, "the server failed", SERVER)
                await answer_of(failed)(scope, receive, counted)
        path = scope["path"] if scope["path"] in KNOWN else "other"
        self._metrics.requests.labels(path, str(statuses[0] if statuses else 499)).inc()
        self._metrics.seconds.labels(path).observe(time.monotonic() - began)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in OPEN or self._knows(scope):
            await self._app(scope, receive, send)
            return
        what = "no such API key; send it as 'Authorization: Bearer KEY'"
        headers = {"WWW-Authenticate": "Bearer"}
        refusal = Refusal(401, what, KEY, code="invalid_api_key", headers=headers)
        await answer_of(refusal)(scope, receive, send)

    def _knows(self, scope: Scope) -> bool:
        """Return whether a request has the key, in a time that says nothing of it."""
        if self._key is None:
            return True
        kind, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        same = hmac.compare_digest(given.strip().encode(), self._key)
        return same and kind.lower() == "bearer"


def answer_of(refusal: Refusal) -> Response:
    """The answer that tells a refusal."""
    return JSONResponse(refusal.content(), refusal.status, refusal.headers)


def refused(_: Request, error: Exception) -> Response:
    """Answer a request that is refused, by an endpoint or because there is none."""
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)
    if isinstance(error, HTTPException):
        headers = dict(error.headers) if error.headers else None
        return answer_of(Refusal(error.status_code, error.detail, headers=headers))
    assert isinstance(error, Refusal)  # noqa: S101 - handlers are registered for these three
    return answer_of(error)
