"""Clients that send nothing, little, or are too many."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.serve.conftest import serving, wait_until
from tests.serve.http_client import COMPLETIONS, JSON, Client

MOST, SECONDS = 3, 0.6
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
ASKED = {"prompt": "Once", "max_tokens": 2}


@pytest.fixture(scope="module")
def strict(folders: dict[str, Path]) -> Iterator[Client]:
    with serving(folders, "one", connections=MOST, read_seconds=SECONDS) as client:
        yield client


def connected(client: Client) -> socket.socket:
    return socket.create_connection(("127.0.0.1", client.port), timeout=20)


def answer_to(sock: socket.socket, dribble: bytes) -> bytes:
    """The bytes that a client reads, which sends one now and then, until it is cut off."""
    began, said = time.monotonic(), b""
    sock.settimeout(0.1)
    for place in range(200):
        assert time.monotonic() < began + 15
        try:
            sock.sendall(dribble[place : place + 1])
            part = sock.recv(4096)
        except TimeoutError:
            continue
        except OSError:
            return said
        if not part:
            return said
        said += part
    raise AssertionError("it was not cut off")


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nX-Slow: " + b"x" * 100])
def test_a_head_that_does_not_come(strict: Client, sent: bytes) -> None:
    with connected(strict) as sock:
        assert answer_to(sock, sent) == b""
    assert strict.good("/health")


def test_a_body_that_does_not_come(strict: Client) -> None:
    with connected(strict) as sock:
        sock.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
        said = answer_to(sock, b"{" + b" " * 500)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert json.loads(said.partition(b"\r\n\r\n")[2])["error"]["code"] == "body_too_slow"


def test_a_body_that_nobody_reads(strict: Client) -> None:
    """A request is refused by its head alone, and its body goes on coming."""
    with connected(strict) as sock:
        sock.sendall(HEAD.replace(b"completions", b"nothing") + b"Content-Length: 1000\r\n\r\n")
        assert answer_to(sock, b"x" * 500).startswith(b"HTTP/1.1 404 ")


def test_a_second_head_that_does_not_come(strict: Client) -> None:
    with connected(strict) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1" not in answer_to(sock, b"GET /health" + b" " * 500)


@pytest.mark.long
def test_requests_one_after_the_other(strict: Client) -> None:
    """One connection may last longer than a request may take to come."""
    connection = HTTPConnection("127.0.0.1", strict.port, timeout=20)
    for _ in range(4):
        connection.request("POST", COMPLETIONS, json.dumps(ASKED).encode(), JSON)
        with connection.getresponse() as answer:
            assert answer.status == 200
            assert json.loads(answer.read())["choices"]
        time.sleep(SECONDS / 2)
    connection.close()
    with connected(strict) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
        wait_until(lambda: sock.recv(4096, socket.MSG_PEEK) != b"")
        time.sleep(SECONDS / 3)
        assert sock.recv(1 << 16).count(b"HTTP/1.1 200 ") == 3


def all_taken(client: Client, sent: bytes) -> list[socket.socket]:
    """Connect as many clients as there may be, each of which sends something."""
    made = client.server.server_state.connections
    wait_until(lambda: not made)
    socks = []
    for _ in range(MOST):
        socks.append(connected(client))
        wait_until(lambda: len(made) == len(socks))
        socks[-1].sendall(sent)
    return socks


def test_more_clients_than_there_may_be(strict: Client) -> None:
    socks = all_taken(strict, HEAD + b"Content-Length: 1000\r\n\r\n")
    made = strict.server.server_state.connections
    wait_until(lambda: not any(one.is_silent for one in made))
    with connected(strict) as sock:  # nothing is sent, as a system may drop what is not read
        said = answer_to(sock, b"")
    assert said.startswith(b"HTTP/1.1 503 ")
    assert json.loads(said.partition(b"\r\n\r\n")[2])["error"]["code"] == "connections_full"
    for sock in socks:
        sock.close()
    wait_until(lambda: not strict.server.server_state.connections)
    assert strict.good("/health")


def test_silent_clients_keep_nobody_out(folders: dict[str, Path]) -> None:
    with serving(folders, "one", connections=MOST) as client:
        first, *others = all_taken(client, b"GET /health HT")
        assert client.good("/health")
        assert answer_to(first, b"").startswith(b"HTTP/1.1 503 ")
        for sock in others:
            sock.sendall(b"TP/1.1\r\nHost: localhost\r\n\r\n")
            assert sock.recv(4096).startswith(b"HTTP/1.1 200 ")
            sock.close()
        first.close()
