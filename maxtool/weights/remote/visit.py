"""The connections that one request takes, redirects and all: in bounded time, and not inwards.

A server could otherwise send two bytes a second for ever, or point at the services of the user's
own machine and network, which see a caller that they trust.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import Any, TypeAlias

TIMEOUT = 30.0  # seconds without a byte

Address: TypeAlias = tuple[str, int]


class TooSlow(TimeoutError):
    """Bytes come, but not all of them in time."""


class PrivateAddress(ValueError):
    """A redirect leads to an address of this machine or its network."""


@dataclass
class Visit:
    """A request on its way.

    Attributes:
        end: When it must have been answered, by ``time.monotonic()``.
        sockets: Those that it waits for, to be woken by :func:`wake`.
        connected: Whether the host of the URL itself was reached.
        home: Its address; None where a proxy reached it.
    """

    end: float
    sockets: set[socket.socket] = field(default_factory=set)
    connected: bool = False
    home: Address | None = None

    def timeout(self) -> float:
        """Return the seconds to wait for the next byte; ``TooSlow`` if there are none left."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise TooSlow("the answer takes too long")
        return min(left, TIMEOUT)

    def admit(self, peer: Address | None) -> None:
        """Accept a connection to an address, or to a proxy, which guards its own network.

        A redirect may lead to public addresses, and to that of the URL.
        """
        if not self.connected:
            self.connected, self.home = True, peer
        elif peer is not None and peer != self.home and not is_public(peer[0]):
            what = f"it redirects to {peer[0]}, an address of this machine or its network"
            raise PrivateAddress(what)


def is_public(host: str) -> bool:
    """Return whether an IP address is one of the internet's."""
    address = ip_address(host.partition("%")[0])
    inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (inner or address).is_global


def wake(waiting: set[socket.socket]) -> None:
    """Wake every read that waits for one of the sockets, so that it ends at once."""
    for one in tuple(waiting):
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:  # it has ended by itself
            waiting.discard(one)


class PlainConnection(http.client.HTTPConnection):
    """A connection of a visit to a host, or to a proxy; :func:`connecting` makes them."""

    visit: Visit
    proxied: bool

    def connect(self) -> None:
        """Connect; nothing is sent where the visit may not lead."""
        super().connect()
        self.visit.admit(None if self.proxied else self.sock.getpeername()[:2])


class TlsConnection(http.client.HTTPSConnection, PlainConnection):
    """A connection of a visit by TLS; the handshake follows :meth:`PlainConnection.connect`."""


def connecting(
    kind: type[PlainConnection], visit: Visit, *, proxied: bool
) -> Callable[..., PlainConnection]:
    """The function that makes connections of a visit, as a handler of urllib calls it."""

    def made(host: str, **more: Any) -> PlainConnection:  # noqa: ANN401 - as the class has it
        connection = kind(host, **more | {"timeout": visit.timeout()})
        connection.visit, connection.proxied = visit, proxied
        connection.response_class = partial(_Answer, visit=visit)  # type: ignore[assignment]
        return connection

    return made


class _Answer(http.client.HTTPResponse):
    """An answer that is read within its visit's time."""

    def __init__(self, sock: socket.socket, *more: Any, visit: Visit, **named: Any) -> None:  # noqa: ANN401
        super().__init__(sock, *more, **named)
        self.fp: Any = io.BufferedReader(_TimedSocket(self.fp.detach(), sock, visit))


class _TimedSocket(io.RawIOBase):
    """The bytes of a socket, each waited for no longer than the visit lasts."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, visit: Visit) -> None:
        self._raw, self._socket, self._visit = raw, sock, visit
        visit.sockets.add(sock)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 - as the base class has it
        self._socket.settimeout(self._visit.timeout())
        try:
            return self._raw.readinto(buffer)
        except TimeoutError:
            self._visit.timeout()  # was it the last wait?
            raise

    def close(self) -> None:
        self._visit.sockets.discard(self._socket)
        self._raw.close()
        super().close()
