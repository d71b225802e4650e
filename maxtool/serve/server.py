"""The server: its socket, its application, and how it stops."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import cast

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect

from maxtool.errors import MachineLacks
from maxtool.serve.connections import Connection
from maxtool.serve.endpoints import Endpoints
from maxtool.serve.guard import Guard, refused
from maxtool.serve.limits import Limits
from maxtool.serve.metrics import Metrics
from maxtool.serve.open_files import Listener
from maxtool.serve.refusal import Refusal
from maxtool.serve.served import Served

LOOPBACK = ("127.0.0.1", "localhost", "::1")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
MILLISECONDS = 60_000  # that a client may leave what was sent to it unread


@dataclass(frozen=True, kw_only=True)
class Access:
    """The clients that may use a server.

    Attributes:
        host: The address that it listens on.
        key: What clients must know, if anything.
        origins: Pages of these origins may use it, besides its own.
    """

    host: str = "127.0.0.1"
    key: str | None = None
    origins: Sequence[str] = ()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes any that is free.

    Raises:
        MachineLacks: If the address is taken, or none of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        what = f"cannot listen on {host} port {port}: {error.strerror or error}"
        raise MachineLacks(what, hint="--port 0 takes any port that is free") from None
    # Connections inherit both. asyncio sets the former only where a socket names its protocol, and
    # without it the second part of an answer waits 40 ms for the client to confirm the first.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, MILLISECONDS)
    return Listener(listener)


def application(
    models: Sequence[Served], access: Access, limits: Limits, metrics: Metrics
) -> Starlette:
    """The ASGI application over some models."""
    middleware = [Middleware(Guard, key=access.key, metrics=metrics)]
    if access.origins:
        origins, methods = list(access.origins), ["GET", "POST"]
        cors = {"allow_origins": origins, "allow_methods": methods, "allow_headers": ["*"]}
        middleware.insert(0, Middleware(CORSMiddleware, **cors))  # type: ignore[arg-type]
    if access.host in LOOPBACK:
        # A page of a foreign name that resolves to this machine is no user of it.
        middleware.insert(0, Middleware(TrustedHostMiddleware, allowed_hosts=[*LOOPBACK, "[::1]"]))
    handlers = dict.fromkeys((Refusal, HTTPException, ClientDisconnect), refused)
    endpoints = Endpoints(models, limits, metrics)
    app = Starlette(routes=endpoints.routes(), middleware=middleware, exception_handlers=handlers)
    app.state.stop = endpoints.stop
    return app


class Server(uvicorn.Server):
    """Server that stops at a signal, when what is running has ended or had its time."""

    def __init__(self, app: Starlette, models: Sequence[Served], limits: Limits) -> None:
        self._models, self._app = models, app
        config = uvicorn.Config(
            app,
            http=cast("type[asyncio.Protocol]", partial(Connection, limits)),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=round(limits.stop_seconds),
        )
        super().__init__(config)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal while the block runs, and then end as a program that is done."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Stop: what waits is refused, what runs goes on for a while; at once if told twice."""
        self.force_exit = self.should_exit
        self.stop()

    def stop(self) -> None:
        """Begin to stop."""
        self.should_exit = True
        self._app.state.stop()
        for served in self._models:
            # In a thread: the signal may have come while this one holds a lock of a model.
            threading.Thread(target=served.stop, daemon=True).start()

    def serve_on(self, listener: socket.socket) -> None:
        """Serve until told to stop; the models' threads have ended then."""
        try:
            self.run([listener])
        finally:
            for served in self._models:
                served.close()
