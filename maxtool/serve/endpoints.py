"""The paths of the API, and what answers each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from maxtool.serve.answering import Answering
from maxtool.serve.asked import Asked, asked_chat, asked_completion, compiles
from maxtool.serve.limits import Limits
from maxtool.serve.metrics import Metrics
from maxtool.serve.reading import Reading
from maxtool.serve.refusal import Refusal, wrong
from maxtool.serve.served import Served

Read: TypeAlias = Callable[[Served, Mapping[str, Any], Limits], Asked]
# Gives the JSON of a model's answer to content, within seconds.
Make: TypeAlias = Callable[[Served, Mapping[str, Any], float], Awaitable[object]]
SLOW_READER = 30.0  # seconds beyond the limit for whoever reads a stream
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
GONE = Response(status_code=499)  # which nobody reads


class Endpoints:
    """Handlers of requests, over the models of a server."""

    def __init__(self, models: Sequence[Served], limits: Limits, metrics: Metrics) -> None:
        self._models = {served.name: served for served in models}
        self._limits, self._metrics = limits, metrics
        self._reading = Reading(limits)

    def stop(self) -> None:
        """Read no more requests."""
        self._reading.stop()

    def routes(self) -> list[Route]:
        """The paths."""
        chat, completion = (partial(self._text, read) for read in (asked_chat, asked_completion))
        return [
            Route("/", self._page),
            Route("/health", self._health),
            Route("/metrics", self._told),
            Route("/v1/models", self._list),
            Route("/v1/models/{name}", self._model),
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/completions", completion, methods=["POST"]),
            Route("/v1/embeddings", partial(self._made, Served.vectors), methods=["POST"]),
            Route("/v1/rerank", partial(self._made, Served.ranks), methods=["POST"]),
        ]

    async def _page(self, _: Request) -> Response:
        page = files("maxtool.serve").joinpath("page.html").read_text(encoding="utf-8")
        # The page runs its own script and asks its own server; nothing else.
        policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        headers = {"Content-Security-Policy": policy + "connect-src 'self'; img-src data:"}
        return HTMLResponse(page, headers=headers)

    async def _health(self, _: Request) -> Response:
        ill = [name for name, served in self._models.items() if not served.is_well]
        status = {"status": "ok"} if not ill else {"status": "failing", "models": ill}
        return JSONResponse(status, 503 if ill else 200)

    async def _told(self, _: Request) -> Response:
        return Response(self._metrics.text(), media_type=PROMETHEUS)

    async def _list(self, _: Request) -> Response:
        data = [served.content() for served in self._models.values()]
        return JSONResponse({"object": "list", "data": data})

    async def _model(self, request: Request) -> Response:
        return JSONResponse(self._named(request.path_params["name"]).content())

    async def _text(self, read: Read, request: Request) -> Response:
        """Answer a request for text: the answer streams, or comes in one piece."""
        until = time.monotonic() + self._limits.seconds
        asked = await self._reading.made(request, partial(self._asked, read), self._compiles)
        left = until - time.monotonic()
        answering = Answering(asked, asked.served.writer(), self._metrics, left)
        if asked.streams:
            return EventStream(answering, left + SLOW_READER)
        return await unless_gone(request, answering.whole())

    def _asked(self, read: Read, content: Mapping[str, Any]) -> Asked:
        served = self._chosen(content)
        served.writer()
        return read(served, content, self._limits)

    def _compiles(self, content: Mapping[str, Any]) -> bool:
        return compiles(self._chosen(content), content)

    async def _made(self, make: Make, request: Request) -> Response:
        """Answer a request that a model answers in one piece."""
        content = await self._reading.made(request, lambda content: content)
        work = make(self._chosen(content), content, self._limits.seconds)
        return await unless_gone(request, work)

    def _chosen(self, content: Mapping[str, Any]) -> Served:
        """The model that a request names; the only one where it names none."""
        name = content.get("model")
        if name is None and len(self._models) == 1:
            (served,) = self._models.values()
            return served
        if not isinstance(name, str):
            raise wrong("model", "must be the name of a model")
        return self._named(name)

    def _named(self, name: str) -> Served:
        if name not in self._models:
            what = f"there is no model {name!r:.80}; there is {', '.join(self._models)}"
            raise Refusal(404, what, param="model", code="model_not_found")
        return self._models[name]


async def unless_gone(request: Request, work: Awaitable[object]) -> Response:
    """The answer that work gives; a client that goes away ends the work."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        return JSONResponse(task.result()) if task.done() else GONE
    finally:
        gone.cancel()
        task.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    """Wait until the client has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class EventStream(StreamingResponse):
    """Server-sent events of an answer, which ends when its reader goes away or is too slow."""

    def __init__(self, answering: Answering, seconds: float) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(answering.pieces(), media_type="text/event-stream", headers=headers)
        self._answering, self._seconds = answering, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            async with asyncio.timeout(self._seconds):
                await super().__call__(scope, receive, send)
        except TimeoutError:  # the answer has begun, so that no error can be told
            return
        finally:
            self._answering.end()
