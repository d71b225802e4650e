"""Ranges of files by HTTP. What a server says is checked, and no more is read than asked for."""

from __future__ import annotations

import base64
import http.client
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import IO, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from maxtool import __version__
from maxtool.errors import ChangedFile, InputError, TransferFailed, UsageError
from maxtool.urls import HTTP, redacted, wrong_host
from maxtool.weights.remote.answers import (
    OK,
    PARTIAL,
    described,
    empty_size,
    is_same,
    reason_for,
    received,
    refuse,
)
from maxtool.weights.remote.store import Described, Piece, Store
from maxtool.weights.remote.visit import (
    TIMEOUT,
    PlainConnection,
    TlsConnection,
    Visit,
    connecting,
    wake,
)

# All ranges of a checkpoint together may take so many seconds.
SECONDS = 1800.0
# An answer may take so many, and one more for each so many bytes of it.
PATIENCE, BYTES_PER_SECOND = 60.0, 1 << 14
STREAMED = 1 << 20  # bytes of a piece where there are no ranges


class HttpStore(Store):
    """Files of web servers; user and password of a URL go to its own host only.

    Args:
        seconds: What all requests together may take; ``SECONDS`` if not given.
    """

    def __init__(self, seconds: float | None = None) -> None:
        super().__init__()
        self._opener = urllib.request.build_opener(_Http, _Https, _Redirects)
        self._end = time.monotonic() + (SECONDS if seconds is None else seconds)
        self._sockets: set[socket.socket] = set()
        self._described: dict[str, Described] = {}
        self._without_ranges: set[str] = set()

    def stop(self) -> None:
        """Close every connection, and open no other."""
        super().stop()
        self._end = 0.0
        wake(self._sockets)

    def describe(self, url: str) -> Described:
        """Ask for the first byte of a file; what is read of it later has to be of that version."""
        self._described.pop(url, None)
        self._without_ranges.discard(url)
        with self._asked(url, 0, 1) as answer:
            told = described(answer, url)
            if isinstance(answer, http.client.HTTPResponse) and answer.status == OK and told.size:
                self._without_ranges.add(url)
        self._described[url] = told
        return told

    def has_ranges(self, url: str) -> bool:
        """Return whether ranges can be read, of a file that was described."""
        return url not in self._without_ranges

    def stream(self, url: str) -> Iterator[Piece]:
        """Read all of a file that was described."""
        known = self._described[url]
        done = 0
        with self._asked(url, 0, None, known.size) as answer:
            self._check_same(answer, url)
            while data := answer.read(STREAMED):
                done += len(data)
                yield Piece(data, known.size)
        if done != known.size:
            what = f"the server announced {known.size} bytes and sent {done}"
            raise TransferFailed(what, file=redacted(url))

    def _read(self, url: str, start: int, count: int) -> Piece:
        with self._asked(url, start, count, count) as answer:
            if isinstance(answer, urllib.error.HTTPError):
                return Piece(b"", empty_size(answer))
            self._check_same(answer, url)
            return received(answer, start, count, url)

    @contextmanager
    def _asked(
        self, url: str, start: int, count: int | None, nbytes: int = 0
    ) -> Iterator[http.client.HTTPResponse | urllib.error.HTTPError]:
        """An answer to a request for a range, or all, of a file; a refused range if it is empty.

        It is read in the block, in the time that so many bytes may take.
        """
        if wrong := wrong_host(url):
            raise UsageError(f"not a valid URL: {wrong}", file=redacted(url))
        patience = PATIENCE + nbytes / BYTES_PER_SECOND
        visit = Visit(min(time.monotonic() + patience, self._end), self._sockets)
        known = self._described.get(url)
        try:
            request = _request(url, start, count, known and known.version, visit)
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            with closing(error):
                refuse(error, url)
                yield error
        except (OSError, ValueError, http.client.HTTPException) as error:
            # Without the cause, whose text may hold the URL.
            reason, hint = reason_for(getattr(error, "reason", error))
            kind = InputError if isinstance(error, ValueError) else TransferFailed
            raise kind(f"cannot be read: {reason}", file=redacted(url), hint=hint) from None

    def _check_same(self, answer: http.client.HTTPResponse | Any, url: str) -> None:  # noqa: ANN401
        """Check that what comes is of the file that was described, if it was."""
        known = self._described.get(url)
        is_part = answer.status == PARTIAL
        if known is not None and not is_same(answer.headers, known, is_part=is_part):
            what, hint = "the file was replaced while it was read", "run this again"
            raise ChangedFile(what, file=redacted(url), hint=hint)


class _Request(urllib.request.Request):
    """A request of a visit."""

    def __init__(self, url: str, headers: dict[str, str], visit: Visit) -> None:
        super().__init__(url, headers=headers)
        self.visit = visit

    @property
    def proxied(self) -> bool:
        """Return whether it goes to a proxy rather than to the host of its URL."""
        return self.has_proxy() or bool(self._tunnel_host)  # type: ignore[attr-defined]


class _Http(urllib.request.HTTPHandler):
    """Opens ``http://`` by connections of the request's visit."""

    def http_open(self, req: Any) -> http.client.HTTPResponse:  # noqa: ANN401 - a _Request
        return self.do_open(connecting(PlainConnection, req.visit, proxied=req.proxied), req)


class _Https(urllib.request.HTTPSHandler):
    """Opens ``https://`` by connections of the request's visit."""

    def https_open(self, req: Any) -> http.client.HTTPResponse:  # noqa: ANN401 - a _Request
        return self.do_open(connecting(TlsConnection, req.visit, proxied=req.proxied), req)


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
        if refused := _refused_redirect(req.type, newurl):
            fp.close()
            raise ValueError(f"it redirects {refused}")
        followed = super().redirect_request(req, fp, code, msg, headers, newurl)
        if followed is None:
            return None
        fp.close()  # the base class would read its text, which may have no end
        if followed.host != req.host:
            followed.remove_header("Authorization")
        return _Request(followed.full_url, dict(followed.headers), req.visit)


def _refused_redirect(protocol: str, url: str) -> str | None:
    """Return why a redirect from one protocol to a URL is not followed; None if it is."""
    parts = urlsplit(url)
    if parts.scheme not in HTTP:
        return "to something that is not HTTP"
    if protocol == "https" and parts.scheme == "http":
        return "from https to http"
    if wrong := wrong_host(url):
        return f"to a URL that is not valid: {wrong}"
    if set(parts.netloc) & {*"%@"}:  # urllib decodes the one, and connects to what it comes to
        return "to a host that is written with % or @"
    return None


def _request(
    url: str, start: int, count: int | None, version: str | None, visit: Visit
) -> _Request:
    """A request for a range of a file of a version, if one is known, or for all of it."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    headers = {"Accept-Encoding": "identity", "User-Agent": f"maxtool/{__version__}"}
    if count is not None:
        headers["Range"] = f"bytes={start}-{start + count - 1}"
        headers |= {"If-Range": version} if version else {}
    if user:
        secret = base64.b64encode(unquote(user).encode()).decode()
        headers["Authorization"] = f"Basic {secret}"
    plain = urlunsplit(parts._replace(netloc=host, fragment=""))
    return _Request(plain, headers, visit)
