"""Ranges of files of the Hub, by the session of huggingface_hub, with its token and proxies."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from maxtool import __version__
from maxtool.errors import InputError, TransferFailed
from maxtool.sources.hub_library import explained, library
from maxtool.weights import hub
from maxtool.weights.hub import HubName
from maxtool.weights.remote.answers import expected_bytes
from maxtool.weights.remote.http import BYTES_PER_SECOND, PATIENCE
from maxtool.weights.remote.store import Piece, Store
from maxtool.weights.remote.visit import TIMEOUT, wake

EXPIRED = (401, 403, 404, 410)
# Endings of httpx's names for a connection that is made, and for what encrypts it.
CONNECTED = (".connect_tcp.complete", ".start_tls.complete")
SLOW = "the same command goes on from what is there, on a faster connection"


class HubStore(Store):
    """Files by their names, ``hf://ORG/MODEL@COMMIT/FILE``.

    The Hub sends who asks for a large file elsewhere, by a signed URL. This is kept while it
    serves, so that each piece is one request, and the token is not sent there.
    """

    def __init__(self) -> None:
        super().__init__()
        self._elsewhere: dict[str, str] = {}
        self._sockets: set[socket.socket] = set()
        library().close_session()  # so that every connection is one that is noted

    def stop(self) -> None:
        """End every read in flight, and refuse new ones."""
        super().stop()
        wake(self._sockets)

    def _read(self, url: str, start: int, count: int) -> Piece:
        name = hub.parse(url)
        signed = self._elsewhere.get(url)
        with explained(name):
            if signed is not None:
                with self._asked(signed, start, count, {}) as answer:
                    if answer.status_code not in EXPIRED:
                        return self._received(answer, start, count, name)
                self._elsewhere.pop(url, None)
            with self._asked(_address(name), start, count, _identity()) as answer:
                if urlsplit(str(answer.url)).netloc != urlsplit(_address(name)).netloc:
                    self._elsewhere[url] = str(answer.url)
                return self._received(answer, start, count, name)

    def _asked(self, address: str, start: int, count: int, headers: dict[str, str]) -> Any:  # noqa: ANN401
        """An answer to a request for a range, to be read and closed."""
        span = {"Range": f"bytes={start}-{start + count - 1}", "Accept-Encoding": "identity"}
        return (
            library()
            .get_session()
            .stream(
                "GET",
                address,
                headers=headers | span,
                timeout=TIMEOUT,
                extensions={"trace": self._traced},
            )
        )

    def _traced(self, event: str, info: Mapping[str, Any]) -> None:
        """Note the socket of a new connection; httpx tells of it by this name."""
        if event.endswith(CONNECTED):
            self._sockets.add(info["return_value"].get_extra_info("socket"))
        if self.stopped.is_set():
            wake(self._sockets)

    def _received(self, answer: Any, start: int, count: int, name: HubName) -> Piece:  # noqa: ANN401
        """The bytes of an answer, no more than were asked for and in bounded time."""
        from huggingface_hub.utils import hf_raise_for_status

        if answer.is_error:
            hf_raise_for_status(answer)
        expected, total = expected_bytes(answer.status_code, answer.headers, start, count, name.url)
        end = time.monotonic() + PATIENCE + count / BYTES_PER_SECOND
        data = bytearray()
        for chunk in answer.iter_bytes():
            data += chunk
            if len(data) > expected:
                raise InputError("the server sent more than it announced", file=name.url)
            if time.monotonic() > end:
                raise InputError("the answer takes too long", file=name.url, hint=SLOW)
        if len(data) < expected:
            what = f"the server announced {expected} bytes and sent {len(data)}"
            raise TransferFailed(what, file=name.url)
        return Piece(bytes(data), total)


def _address(name: HubName) -> str:
    return str(library().hf_hub_url(name.repository, name.file, revision=name.revision))


def _identity() -> dict[str, str]:
    """The headers that say who asks, with the user's token if there is one."""
    from huggingface_hub.utils import build_hf_headers

    made: dict[str, str] = build_hf_headers(library_name="maxtool", library_version=__version__)
    return made
