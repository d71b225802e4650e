"""Ranges of files by HTTP. What a server says is checked, and no more is read than asked for."""

from __future__ import annotations

import base64
import http.client
import re
import socket
import time
import urllib.error
import urllib.request
from contextlib import closing
from typing import IO, Any, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from maxtool import __version__
from maxtool.errors import InputError, MissingFile, TransferFailed
from maxtool.weights.remote.store import Piece, Store
from maxtool.weights.remote.url import HTTP, redacted
from maxtool.weights.remote.visit import (
    TIMEOUT,
    PlainConnection,
    PrivateAddress,
    TlsConnection,
    TooSlow,
    Visit,
    wake,
)

# All ranges of a checkpoint together may take so many seconds.
SECONDS = 1800.0
# An answer may take so many, and one more for each so many bytes of it.
PATIENCE, BYTES_PER_SECOND = 60.0, 1 << 14
OK, PARTIAL, NOT_SATISFIABLE = 200, 206, 416
TRY_LATER = (408, 429, 500, 502, 503, 504)
REFUSED = {
    401: "the server asks for credentials",
    403: "the server refuses access",
    404: "the server has no such file",
    410: "the server has no such file any more",
}
DOWNLOAD = "download the file and inspect it here"
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_EMPTY = re.compile(r"bytes \*/(\d{1,18})")


class Headers(Protocol):
    """Headers of an answer, by their names in any case."""

    def get(self, name: str, default: str, /) -> str:
        """The value of a header, or the default."""
        ...


class HttpStore(Store):
    """Files of web servers; user and password of a URL go to its own host only."""

    def __init__(self) -> None:
        super().__init__()
        self._opener = urllib.request.build_opener(_Http, _Https, _Redirects)
        self._end = time.monotonic() + SECONDS
        self._sockets: set[socket.socket] = set()

    def stop(self) -> None:
        """Close every connection, and open no other."""
        super().stop()
        self._end = 0.0
        wake(self._sockets)

    def _read(self, url: str, start: int, count: int) -> Piece:
        patience = PATIENCE + count / BYTES_PER_SECOND
        visit = Visit(min(time.monotonic() + patience, self._end), self._sockets)
        try:
            request = _request(url, start, count, visit)
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                return _received(answer, start, count, url)
        except urllib.error.HTTPError as error:
            with closing(error):
                return _refused(error, url)
        except (OSError, ValueError, http.client.HTTPException) as error:
            # Without the cause, whose text may hold the URL.
            reason, hint = _reason(getattr(error, "reason", error))
            kind = InputError if isinstance(error, ValueError) else TransferFailed
            raise kind(f"cannot be read: {reason}", file=redacted(url), hint=hint) from None


class _Request(urllib.request.Request):
    """A request of a visit."""

    def __init__(self, url: str, headers: dict[str, str], visit: Visit) -> None:
        super().__init__(url, headers=headers)
        self.visit = visit

    @property
    def proxied(self) -> bool:
        """Return whether it goes to a proxy rather than to the host of its URL."""
        return self.host != urlsplit(self.full_url).netloc


class _Http(urllib.request.HTTPHandler):
    """Opens ``http://`` by connections of the request's visit."""

    def http_open(self, req: Any) -> http.client.HTTPResponse:  # noqa: ANN401 - a _Request
        return self.do_open(PlainConnection, req, visit=req.visit, proxied=req.proxied)  # type: ignore[arg-type]


class _Https(urllib.request.HTTPSHandler):
    """Opens ``https://`` by connections of the request's visit."""

    def https_open(self, req: Any) -> http.client.HTTPResponse:  # noqa: ANN401 - a _Request
        return self.do_open(TlsConnection, req, visit=req.visit, proxied=req.proxied)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to other HTTP servers, but takes no credentials there."""

    def redirect_request(
        self,
        req: Any,  # noqa: ANN401 - a _Request
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Any,  # noqa: ANN401 - as the base class has it
        newurl: str,
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme not in HTTP:
            raise ValueError("it redirects to something that is not HTTP")
        if req.type == "https" and urlsplit(newurl).scheme == "http":
            raise ValueError("it redirects from https to http")
        followed = super().redirect_request(req, fp, code, msg, headers, newurl)
        if followed is None:
            return None
        fp.close()  # the base class would read its text, which may have no end
        if followed.host != req.host:
            followed.remove_header("Authorization")
        return _Request(followed.full_url, dict(followed.headers), req.visit)


def _request(url: str, start: int, count: int, visit: Visit) -> _Request:
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    headers = {
        "Range": f"bytes={start}-{start + count - 1}",
        "Accept-Encoding": "identity",
        "User-Agent": f"maxtool/{__version__}",
    }
    if user:
        secret = base64.b64encode(unquote(user).encode()).decode()
        headers["Authorization"] = f"Basic {secret}"
    plain = urlunsplit(parts._replace(netloc=host, fragment=""))
    return _Request(plain, headers, visit)


def _received(answer: http.client.HTTPResponse, start: int, count: int, url: str) -> Piece:
    """The bytes of an answer, if they are what it and the request say."""
    expected, total = expected_bytes(answer.status, answer.headers, start, count, url)
    data = answer.read(expected + 1)
    if len(data) > expected:
        what = f"the server announced {expected} bytes and sent more"
        raise InputError(what, file=redacted(url))
    if len(data) < expected:
        what = f"the server announced {expected} bytes and sent {len(data)}"
        raise TransferFailed(what, file=redacted(url))
    return Piece(data, total, _version(answer.headers))


def expected_bytes(
    status: int, headers: Headers, start: int, count: int, url: str
) -> tuple[int, int]:
    """Count the bytes that an answer to a request for ``count`` is to have, and the file has.

    ``InputError`` if it is not an answer to that.
    """
    if headers.get("Content-Encoding", "identity") != "identity":
        raise InputError("the server compresses what it sends", file=redacted(url), hint=DOWNLOAD)
    first, last, total = _extent(status, headers, count, url)
    if first != start or last != min(start + count, total) - 1:
        what = f"asked for bytes {start} to {start + count - 1}, the server sends {first} to {last}"
        raise InputError(what, file=redacted(url))
    return last - first + 1, total


def _version(headers: Headers) -> str | None:
    """Return what tells a file from a later one under its URL; weak tags do not."""
    tag = headers.get("ETag", "")
    return (tag if not tag.startswith("W/") else "") or headers.get("Last-Modified", "") or None


def _extent(status: int, headers: Headers, count: int, url: str) -> tuple[int, int, int]:
    """Return first and last byte of a response, and the size of the file."""
    length = headers.get("Content-Length", "")
    if status == OK and length.isascii() and length.isdigit() and int(length[:18]) <= count:
        return 0, int(length) - 1, int(length)  # a whole file, and a small one
    if status != PARTIAL:
        what = "the server does not support range requests, by which headers are read"
        raise InputError(what, file=redacted(url), hint=DOWNLOAD)
    match = _RANGE.fullmatch(headers.get("Content-Range", ""))
    if match is None or match[3] == "*":
        what = "the server does not say which bytes it sends, or of how many"
        raise InputError(what, file=redacted(url), hint=DOWNLOAD)
    return int(match[1]), int(match[2]), int(match[3])


def _refused(error: urllib.error.HTTPError, url: str) -> Piece:
    empty = _EMPTY.fullmatch(error.headers.get("Content-Range", ""))
    if error.code == NOT_SATISFIABLE and empty:
        return Piece(b"", int(empty[1]))
    if error.code in REFUSED:
        raise MissingFile(f"{REFUSED[error.code]} (HTTP {error.code})", file=redacted(url))
    what = f"the server answers HTTP {error.code}"
    if error.code not in TRY_LATER:
        raise InputError(what, file=redacted(url))
    failed = TransferFailed(what, file=redacted(url))
    failed.wait = seconds_to_wait(error.headers)
    raise failed


def seconds_to_wait(headers: Headers) -> float | None:
    """The seconds that an answer asks to wait; None for a date, nonsense or nothing."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 9 else None


def _reason(error: object) -> tuple[str, str | None]:
    """Return why a connection failed, in words without a URL, and a remedy."""
    if isinstance(error, TooSlow):
        return str(error), DOWNLOAD
    if isinstance(error, TimeoutError):
        return f"no answer for {TIMEOUT:.0f} seconds", None
    if isinstance(error, PrivateAddress):
        return str(error), "if that is meant, give the URL that it redirects to"
    if isinstance(error, http.client.HTTPException):
        return f"the server's answer is not valid HTTP ({type(error).__name__})", None
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__, None
    if isinstance(error, ValueError) and str(error).startswith("it redirects"):
        return str(error), None
    return "not a valid URL" if isinstance(error, ValueError) else type(error).__name__, None
