"""A web server on this machine that knows ranges, counts its bytes, and misbehaves on demand."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

Answer = Callable[["Handler", bytes, int, int], None]


class Server(ThreadingHTTPServer):
    """Serves a folder.

    Attributes:
        root: The folder.
        sent: Bytes of all bodies.
        asked: Path, query and headers of every request.
        answer: How a range of a file is answered.
        asks_for: User and password, encoded as in a header, that are asked for, if any.
    """

    daemon_threads = True
    # Of more connections at once than wait to be accepted, some are tried again a second later.
    request_queue_size = 64

    def __init__(self, root: Path, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.root = root
        self.answer = answer
        self.sent = 0
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.asks_for: str | None = None
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    # A body would wait some 40 milliseconds for the client to confirm the headers.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers)))
        inputs = self.headers.get("Authorization", "").removeprefix("Basic ")
        if self.server.asks_for not in (None, inputs):
            self.refuse(401)
            return
        file = self.server.root / unquote(urlsplit(self.path).path).lstrip("/")
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "bytes=0-9999999999"))
        if not file.is_file() or not wanted:
            self.refuse(404)
            return
        data = file.read_bytes()
        self.server.answer(self, data, int(wanted[1]), min(int(wanted[2]), len(data) - 1))

    def refuse(self, code: int, **headers: object) -> None:
        self.send(code, b"", **headers)

    def send(self, code: int, body: bytes, **headers: object) -> None:
        self.send_response(code)
        for key, value in ({"Content_Length": len(body)} | headers).items():
            self.send_header(key.replace("_", "-"), str(value))
        self.end_headers()
        with self.server.lock:
            self.server.sent += len(body)
        try:
            self.wfile.write(body)
        except OSError:  # the client has seen enough
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Say nothing of a request."""


def ranges(handler: Handler, data: bytes, start: int, last: int) -> None:
    """Answer a range request correctly."""
    if start > last:
        handler.refuse(416, Content_Range=f"bytes */{len(data)}")
        return
    body = data[start : last + 1]
    handler.send(206, body, Content_Range=f"bytes {start}-{last}/{len(data)}")


@contextmanager
def serve(root: Path, answer: Answer = ranges) -> Iterator[Server]:
    """Run a server in the background."""
    with Server(root, answer) as server, answering(server):
        yield server


@contextmanager
def answering(server: ThreadingHTTPServer) -> Iterator[None]:
    """Let a server answer in the background."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
