"""A client that speaks plain HTTP, and reads events as their specification has it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from maxtool.serve.served import Served
from maxtool.serve.server import Server

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
JSON = {"Content-Type": "application/json"}


class Client:
    """A client of a server of this process; each request has a connection of its own."""

    def __init__(self, port: int, models: dict[str, Served], server: Server) -> None:
        self.port, self.models, self.server = port, models, server

    @contextmanager
    def asking(
        self, path: str, body: object = None, method: str = "", headers: dict[str, str] = JSON
    ) -> Iterator[HTTPResponse]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            connection.request(method or ("GET" if data is None else "POST"), path, data, headers)
            yield connection.getresponse()
        finally:
            connection.close()

    def ask(self, path: str, body: object = None, **more: Any) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        with self.asking(path, body, **more) as answer:
            return answer.status, json.loads(answer.read())

    def good(self, path: str, body: object = None, **more: Any) -> Any:
        """The JSON of an answer that must be a good one."""
        status, content = self.ask(path, body, **more)
        assert status == 200, content
        return content

    def refused(self, status: int, path: str, body: object, **more: Any) -> dict[str, Any]:
        """The error of an answer that must be one, in the form of OpenAI's API."""
        found, content = self.ask(path, body, **more)
        assert found == status, content
        assert content.keys() == {"error"}
        assert content["error"].keys() == {"message", "type", "param", "code"}
        assert content["error"]["message"]
        return dict(content["error"])

    def events(self, path: str, body: dict[str, object]) -> list[Any]:
        """The events of a stream, which must be complete."""
        with self.asking(path, {**body, "stream": True}) as answer:
            assert answer.status == 200
            assert answer.getheader("content-type", "").startswith("text/event-stream")
            lines = answer.read().decode().split("\n\n")
        assert lines[-2:] == ["data: [DONE]", ""]
        assert all(line.startswith("data: ") for line in lines[:-1])
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]

    def opened(self, path: str, body: object) -> socket.socket:
        """A connection that has asked, and from which nothing was read."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        sock.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return sock

    def idle(self) -> bool:
        """Return whether nothing runs and nothing waits."""
        workers = [served.worker for served in self.models.values() if served.worker is not None]
        return not any(worker.running or worker.waiting for worker in workers)
