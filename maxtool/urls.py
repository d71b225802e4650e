"""URLs: how they are told from paths, shown without secrets, and taken apart."""

from __future__ import annotations

import hashlib
import posixpath
import re
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from maxtool.errors import UsageError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_PORT = re.compile(r"[^/@:]*:\d*(/|$)|[^/@:]*/|\[")
HTTP = frozenset({"http", "https"})
LOCAL = frozenset({"file", "local"})
# Schemes of Azure, which have the name of a container where others have that of a user.
CONTAINERS = frozenset({"abfs", "abfss", "wasb", "wasbs"})
# Parameters of queries that say who asks, and not what for: names, and how names begin.
SIGNATURES = frozenset(
    (
        *("signature", "expires", "policy", "key-pair-id", "awsaccesskeyid", "googleaccessid"),
        *("sig", "se", "st", "sp", "sv", "sr", "spr", "sip", "sks", "ske", "skt", "skv"),
        *("skoid", "sktid", "saoid", "suoid", "scid"),
        *("token", "access_token", "api_key", "apikey"),
    )
)
SIGNING = ("x-amz-", "x-goog-", "x-oss-")


def is_url(text: str) -> bool:
    """Return whether ``text`` names a place by a scheme, such as ``https://`` or ``s3://``."""
    return _SCHEME.match(text) is not None


def scheme(url: str) -> str:
    """The scheme in small letters, without ``://``."""
    return url.partition("://")[0].lower()


def local_path(url: str) -> Path | None:
    """The path that a ``file://`` URL names; None for URLs of other schemes.

    ``UsageError`` if it names another machine's.
    """
    if scheme(url) not in LOCAL:
        return None
    host, slash, path = url.partition("://")[2].partition("/")
    if host.lower() not in ("", "localhost") or not slash:
        hint = "write file:///PATH, with three slashes, or the path itself"
        raise UsageError("this does not name a file of this machine", file=url, hint=hint)
    return Path(unquote(f"/{path}"))


def redacted(url: str) -> str:
    """A URL as it may be printed: without user, password, query and fragment.

    Queries carry the signatures of signed URLs, so all of a query is taken as secret.
    """
    start, separator, rest = url.partition("://")
    if not separator:
        return url
    address = re.split(r"[?#]", rest, maxsplit=1)[0]
    if ":" in address and not _PORT.match(address):  # a password, perhaps with a slash in it
        address = address.rpartition("@")[2]
    host, slash, path = address.partition("/")
    user, at, host = host.rpartition("@")
    kept = f"{user}{at}" if start.lower() in CONTAINERS and ":" not in user else ""
    return f"{start}://{kept}{host}{slash}{path}"


def identity(url: str) -> str:
    """A text for what a URL names, whoever asks for it: the same for another signature.

    Of a query it has a hash, as that may hold what is secret.
    """
    pairs = parse_qsl(url.partition("?")[2].partition("#")[0], keep_blank_values=True)
    kept = [
        pair
        for pair in pairs
        if pair[0].lower() not in SIGNATURES and not pair[0].lower().startswith(SIGNING)
    ]
    if not kept:
        return redacted(url)
    return f"{redacted(url)}?{hashlib.sha256(urlencode(kept).encode()).hexdigest()}"


def wrong_host(url: str) -> str | None:
    """Return what is wrong with host and port of a web server's URL; None if nothing is."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:  # whose text may have a password in it
        return "its host is not one"
    if not host:
        return "it names no host"
    try:
        port = parts.port
    except ValueError:
        port = 0
    return "its port is not a number from 1 to 65535" if port == 0 else None


def file_name(url: str) -> str:
    """The last segment of the path, decoded; empty for a folder that ends in a slash."""
    try:
        return posixpath.basename(unquote(urlsplit(url).path))
    except ValueError:
        raise UsageError("not a valid URL", file=redacted(url)) from None


def beside(url: str, name: str) -> str:
    """The URL of another file in the folder of ``url``; a query is kept, as access may need it."""
    parts = urlsplit(url)
    folder = posixpath.dirname(parts.path)
    return urlunsplit(parts._replace(path=posixpath.join(folder, _written(url, name))))


def inside(url: str, name: str) -> str:
    """The URL of a file in the folder that ``url`` names."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=posixpath.join(parts.path, _written(url, name))))


def _written(url: str, name: str) -> str:
    """The name of a file as a URL has it: web servers decode it, and other stores do not."""
    return quote(name) if scheme(url) in HTTP else name
