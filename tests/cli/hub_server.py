"""A web server on this machine that speaks the Hub's API, for one repository."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.weights.range_server import Handler, Server, answering, ranges, serve

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "hf://org/model"
# Files that are not in Git, but elsewhere, by their checksums.
LARGE = (".safetensors", ".gguf", ".bin")


class HubHandler(Handler):
    """Answers as the Hub does; files of weights are elsewhere, at ``server.files``."""

    server: HubServer

    def do_GET(self) -> None:  # noqa: N802 - as the base class has it
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append((self.path, dict(self.headers)))
        if self.server.failures:
            code, headers = self.server.failures.pop()
            self.refuse(code, **headers)
        elif path.startswith("/api/models/org/model"):
            self.send(200, json.dumps(self.server.described()).encode())
        elif path.endswith(LARGE):
            self.refuse(302, Location=f"{self.server.files.url}/{_within(path)}?sig=s")
        else:
            self.path = f"/{_within(path)}"
            super().do_GET()


def _within(path: str) -> str:
    """The path of a file in the repository: what is behind the revision."""
    return path.partition("/resolve/")[2].partition("/")[2] or path.rpartition("/")[2]


class HubServer(Server):
    """Serves a folder as the repository ``org/model``.

    Attributes:
        files: The server that large files are at.
        failures: What is answered before anything else, the last one first: a status and headers.
        change: What is made of the description of each file.
    """

    def __init__(self, root: Path, files: Server) -> None:
        super().__init__(root, ranges)
        self.RequestHandlerClass = HubHandler
        self.files = files
        self.failures: list[tuple[int, dict[str, Any]]] = []
        self.change: Callable[[dict[str, Any]], dict[str, Any]] = dict.copy

    def described(self) -> dict[str, Any]:
        """The answer of ``/api/models``."""
        listed = []
        for path in sorted(path for path in self.root.rglob("*") if path.is_file()):
            data = path.read_bytes()
            git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # noqa: S324
            file = {
                "rfilename": path.relative_to(self.root).as_posix(),
                "size": len(data),
                "blobId": git,
            }
            if path.suffix in LARGE:
                sha = hashlib.sha256(data).hexdigest()
                file["lfs"] = {"size": len(data), "sha256": sha, "pointerSize": 134}
            listed.append(self.change(file))
        return {"id": "org/model", "sha": COMMIT, "siblings": listed}


@contextmanager
def serve_hub(root: Path) -> Iterator[HubServer]:
    """Run the server, and the one with large files, in the background."""
    with serve(root) as files, HubServer(root, files) as server, answering(server):
        yield server
