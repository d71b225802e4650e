"""Azure's Blob Storage as far as adlfs asks it: a server with one container, in a thread.

https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api has the requests. Who
asks is not checked, but somebody has to sign. A copy is pending when it is looked at first.
"""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

ACCOUNT, CONTAINER = "account", "container"
DATE = "Mon, 01 Jan 2024 00:00:00 GMT"


@dataclass
class Blobs:
    """The content of the server.

    Attributes:
        blobs: The content of blobs, by name.
        blocks: Blocks that are not yet of a blob, by blob and id.
        refused: Methods that are answered with 403.
        pending: Copies that nobody has looked at.
        copies: How many there were.
    """

    blobs: dict[str, bytes] = field(default_factory=dict)
    blocks: dict[tuple[str, str], bytes] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    copies: int = 0

    def etag(self, name: str) -> str:
        return f'"0x{hashlib.sha1(self.blobs[name], usedforsecurity=False).hexdigest()[:15]}"'


@contextmanager
def serving() -> Iterator[Blobs]:
    """Yield what a server holds, which the environment names."""
    pytest.importorskip("adlfs")
    held = Blobs()
    handler = type("Handler", (_Handler,), {"held": held})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    key = base64.b64encode(b"sesame").decode()
    endpoint = f"http://127.0.0.1:{server.server_port}/{ACCOUNT}"
    said = f"AccountName={ACCOUNT};AccountKey={key};BlobEndpoint={endpoint}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AZURE_STORAGE_CONNECTION_STRING", said)
        yield held
    server.shutdown()
    server.server_close()
    thread.join()


class _Handler(BaseHTTPRequestHandler):
    held: Blobs
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        name, query = self._asked()
        if name is not None and query.get("comp") == "list":
            self._list(query)
        elif name in self.held.blobs:
            self._read(str(name))
        elif name == "":
            self._answer(200)
        else:
            self._missing(name)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        name, query = self._asked()
        if name is None:
            self._missing(name)
        elif query.get("comp") == "block":
            self.held.blocks[name, query["blockid"]] = data
            self._answer(201)
        elif query.get("comp") == "blocklist":
            ids = re.findall(r"<(?:Latest|Uncommitted)>(.*?)</", data.decode())
            self._make(name, b"".join(self.held.blocks.pop((name, one)) for one in ids))
        elif source := self.headers.get("x-ms-copy-source"):
            found = unquote(urlsplit(source).path).split("/", 3)[3]
            self.held.pending.add(name)
            self.held.copies += 1
            self.held.blobs[name] = self.held.blobs[found]
            self._answer(202, {"x-ms-copy-id": "1", "x-ms-copy-status": "pending"})
        else:
            self._make(name, data)

    def do_DELETE(self) -> None:
        name, _ = self._asked()
        found = self.held.blobs.pop(str(name), None)
        self._answer(202) if found is not None else self._missing(name)

    def _asked(self) -> tuple[str | None, dict[str, str]]:
        """The name of a blob, empty for the container; None where it is of another container."""
        parts = urlsplit(self.path)
        segments = unquote(parts.path).split("/", 3)[1:]
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        assert "Authorization" in self.headers
        if self.command in self.held.refused:
            return None, query
        if segments[:2] != [ACCOUNT, CONTAINER]:
            return None, query
        return (segments[2] if len(segments) > 2 else ""), query

    def _make(self, name: str, data: bytes) -> None:
        self.held.blobs[name] = data
        self._answer(201, {"ETag": self.held.etag(name), "Last-Modified": DATE})

    def _read(self, name: str) -> None:
        data, total, status = self.held.blobs[name], len(self.held.blobs[name]), 200
        headers = {
            "ETag": self.held.etag(name),
            "Last-Modified": DATE,
            "x-ms-blob-type": "BlockBlob",
        }
        asked = self.headers.get("x-ms-range") or self.headers.get("Range")
        if asked and self.command == "GET":
            first, last = (int(one) for one in asked.removeprefix("bytes=").split("-"))
            if first >= total:
                return self._answer(416, {"x-ms-error-code": "InvalidRange"})
            data, status = data[first : last + 1], 206
            headers["Content-Range"] = f"bytes {first}-{first + len(data) - 1}/{total}"
        if self.command == "HEAD" and name in self.held.pending:
            self.held.pending.discard(name)
            headers |= {"x-ms-copy-id": "1", "x-ms-copy-status": "pending"}
        return self._answer(status, headers, data)

    def _list(self, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        names = [name for name in sorted(self.held.blobs) if name.startswith(prefix)]
        folders = set()
        if delimiter:
            rest = {name: name.removeprefix(prefix).partition(delimiter) for name in names}
            folders = {prefix + parts[0] + delimiter for parts in rest.values() if parts[1]}
            names = [name for name, parts in rest.items() if not parts[1]]
        listed = "".join(
            f"<Blob><Name>{escape(name)}</Name><Properties><Last-Modified>{DATE}</Last-Modified>"
            f"<Etag>{escape(self.held.etag(name))}</Etag>"
            f"<Content-Length>{len(self.held.blobs[name])}</Content-Length>"
            "<BlobType>BlockBlob</BlobType></Properties></Blob>"
            for name in names
        )
        listed += "".join(
            f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>" for name in sorted(folders)
        )
        body = f'<?xml version="1.0"?><EnumerationResults ContainerName="{CONTAINER}">'
        body += f"<Blobs>{listed}</Blobs><NextMarker/></EnumerationResults>"
        self._answer(200, {"Content-Type": "application/xml"}, body.encode())

    def _missing(self, name: str | None) -> None:
        code = "BlobNotFound" if name is not None else "ContainerNotFound"
        if self.command in self.held.refused:
            return self._answer(403, {"x-ms-error-code": "AuthorizationPermissionMismatch"})
        return self._answer(404, {"x-ms-error-code": code})

    def _answer(
        self, status: int, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("x-ms-version", "2024-01-01")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
