"""URLs: how they are told from paths, shown without secrets, and taken apart."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote, urlsplit, urlunsplit

from maxtool.errors import UsageError
from maxtool.weights import hub

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_PORT = re.compile(r"[^/@:]*:\d*(/|$)|[^/@:]*/|\[")
HTTP = frozenset({"http", "https"})


def is_url(text: str) -> bool:
    """Return whether ``text`` names a place by a scheme, such as ``https://`` or ``s3://``."""
    return _SCHEME.match(text) is not None


def scheme(url: str) -> str:
    """The scheme in small letters, without ``://``."""
    return url.partition("://")[0].lower()


def download(url: str) -> str:
    """Advice on how to get a local copy of what lies behind a URL."""
    repository = hub.behind(redacted(url))
    if repository is not None:
        return f"download it first: {hub.download(repository)}"
    return "download it first, and give the file or folder here"


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
    return f"{start}://{host.rpartition('@')[2]}{slash}{path}"


def file_name(url: str) -> str:
    """The last segment of the path, decoded; empty for a folder that ends in a slash."""
    try:
        return posixpath.basename(unquote(urlsplit(url).path))
    except ValueError:
        raise UsageError("not a valid URL", file=redacted(url)) from None


def beside(url: str, name: str) -> str:
    """The URL of another file in the folder of ``url``; a query is kept, as access may need it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=posixpath.join(posixpath.dirname(parts.path), name)))


def inside(url: str, name: str) -> str:
    """The URL of a file in the folder that ``url`` names."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=posixpath.join(parts.path, name)))
