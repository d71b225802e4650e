"""Answers of web servers: what they say of a file is checked before it is believed."""

from __future__ import annotations

import http.client
import re
import urllib.error
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

from maxtool.errors import AccessRefused, InputError, MissingFile, TransferFailed
from maxtool.urls import redacted
from maxtool.weights.remote.store import Described, Piece
from maxtool.weights.remote.visit import TIMEOUT, PrivateAddress, TooSlow

OK, PARTIAL, NOT_SATISFIABLE = 200, 206, 416
TRY_LATER = (408, 429, 500, 502, 503, 504)
ABSENT = {
    404: "the server has no such file",
    410: "the server has no such file any more",
}
REFUSED = {401: "the server asks for credentials", 403: "the server refuses access"}
TAG, MODIFIED = "etag", "last-modified"
SETTLED = 60.0  # seconds after which a file that was changed is not likely to change once more
DOWNLOAD = "download the file and inspect it here"
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_EMPTY = re.compile(r"bytes \*/(\d{1,18})")


class Headers(Protocol):
    """Headers of an answer, by their names in any case."""

    def get(self, name: str, default: str, /) -> str:
        """The value of a header, or the default."""
        ...


def received(answer: http.client.HTTPResponse, start: int, count: int, url: str) -> Piece:
    """The bytes of an answer, if they are what it and the request say."""
    expected, total = expected_bytes(answer.status, answer.headers, start, count, url)
    data = answer.read(expected + 1)
    if len(data) > expected:
        what = f"the server announced {expected} bytes and sent more"
        raise InputError(what, file=redacted(url))
    if len(data) < expected:
        what = f"the server announced {expected} bytes and sent {len(data)}"
        raise TransferFailed(what, file=redacted(url))
    return Piece(data, total)


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


def version_of(headers: Headers) -> str | None:
    """Return what tells a file from a later one under its URL, if anything does.

    Weak tags do not, and neither does a time that is not long past: the file may change again
    within the same second (RFC 9110, section 8.8.2.2).
    """
    name, validator = _validator(headers)
    if name == MODIFIED:
        changed, sent = _seconds(validator), _seconds(headers.get("date", ""))
        if changed is None or sent is None or sent - changed < SETTLED:
            return None
    return validator or None


def is_same(headers: Headers, known: Described, *, is_part: bool) -> bool:
    """Return whether an answer may be of the file that was described.

    A part, which ``If-Range`` asks for, need not say what it is of (RFC 9110, section 15.3.7).
    """
    name, before = _validator(known.headers)
    now = headers.get(name, "")
    return not before or now == before or (is_part and not now)


def _validator(headers: Headers) -> tuple[str, str]:
    """The header by which two answers are told apart, and its value, which may be empty."""
    tag = headers.get(TAG, "")
    return (MODIFIED, headers.get(MODIFIED, "")) if tag[:2] in ("", "W/") else (TAG, tag)


def _seconds(date: str) -> float | None:
    """A date of a header in seconds; None if it is not one."""
    try:
        parsed = parsedate_to_datetime(date)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


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


def described(answer: Any, url: str) -> Described:  # noqa: ANN401 - of either kind
    """The file as an answer to a request for its first byte describes it."""
    headers = {name.lower(): ", ".join(answer.headers.get_all(name)) for name in answer.headers}
    version = version_of(answer.headers)
    if isinstance(answer, urllib.error.HTTPError):
        return Described(empty_size(answer), version, headers, b"")
    if answer.status == PARTIAL:
        _, total = expected_bytes(answer.status, answer.headers, 0, 1, url)
        return Described(total, version, headers, answer.read(1))
    length = answer.headers.get("Content-Length", "")
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        raise InputError("the server compresses what it sends", file=redacted(url), hint=DOWNLOAD)
    if not (length.isascii() and length.isdigit() and len(length) < 19):
        what = "the server does not say how many bytes the file has"
        raise InputError(what, file=redacted(url), hint=DOWNLOAD)
    return Described(int(length), version, headers, b"")


def empty_size(error: urllib.error.HTTPError) -> int:
    """The size that is told where a range is refused."""
    match = _EMPTY.fullmatch(error.headers.get("Content-Range", ""))
    return int(match[1]) if match else 0


def refuse(error: urllib.error.HTTPError, url: str) -> None:
    """Raise what a status means, unless it is that the file ends before the range."""
    if error.code == NOT_SATISFIABLE and _EMPTY.fullmatch(error.headers.get("Content-Range", "")):
        return
    if error.code in ABSENT:
        raise MissingFile(f"{ABSENT[error.code]} (HTTP {error.code})", file=redacted(url))
    if error.code in REFUSED:
        raise AccessRefused(f"{REFUSED[error.code]} (HTTP {error.code})", file=redacted(url))
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


def reason_for(error: object) -> tuple[str, str | None]:
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
