"""Servers that lead elsewhere, drip, and lie about sizes and numbers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxtool.errors import InputError, MalformedFile
from maxtool.weights.opened_checkpoint import open_anywhere
from maxtool.weights.remote import http, visit
from tests.weights.range_server import Answer, Handler, Server, ranges, serve
from tests.weights.remote_model import save_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_model(tmp_path)


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    with serve(folder) as running:
        yield running


def test_redirects_do_not_lead_to_this_machine(folder: Path) -> None:
    def inwards(handler: Handler, *_: object) -> None:
        handler.refuse(302, Location=f"{service.url}{handler.path}")

    with serve(folder) as service, serve(folder, inwards) as server:
        with pytest.raises(InputError, match=r"redirects to 127\.0\.0\.1, an address of") as caught:
            open_anywhere(f"{server.url}/one.safetensors")
        assert not service.asked
    assert caught.value.hint == "if that is meant, give the URL that it redirects to"


@pytest.mark.parametrize("host", ["127%2e0.0.1", "%31%32%37.0.0.1", "x@127.0.0.1", ""])
def test_redirects_to_hosts_in_disguise(folder: Path, host: str) -> None:
    def inwards(handler: Handler, *_: object) -> None:
        location = f"http://{host}:{service.server_port}{handler.path}"
        handler.refuse(302, Location=location)

    with serve(folder) as service, serve(folder, inwards) as server:
        with pytest.raises(InputError, match="it redirects to a "):
            open_anywhere(f"{server.url}/one.safetensors")
        assert not service.asked


def test_only_a_proxy_is_taken_for_one() -> None:
    through = visit.Visit(end=0.0)
    for protocol in ("http", "https"):
        request = http._Request(f"{protocol}://127%2e0.0.1/x#y", {}, through)
        assert not request.proxied
        request.set_proxy("127.0.0.1:3128", "http")
        assert request.proxied


def test_redirects_may_stay_where_the_url_leads(folder: Path) -> None:
    def moved(handler: Handler, data: bytes, start: int, last: int) -> None:
        if handler.path.startswith("/two"):
            handler.refuse(302, Location=handler.path.replace("two", "one"))
        else:
            ranges(handler, data, start, last)

    (folder / "two.safetensors").write_bytes((folder / "one.safetensors").read_bytes())
    with serve(folder, moved) as server:
        opened = open_anywhere(f"{server.url}/two.safetensors")
    assert list(opened.checkpoint.tensors) == ["w"]


ADDRESSES = {
    "93.184.215.14": True,
    "2606:2800:21f:cb07:6820:80da:af6b:8b2c": True,
    "127.0.0.1": False,
    "::1": False,
    "::ffff:127.0.0.1": False,
    "10.1.2.3": False,
    "192.168.0.1": False,
    "169.254.169.254": False,
    "100.64.0.1": False,
    "fe80::1%eth0": False,
    "fd00::1": False,
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_what_is_public(address: str) -> None:
    assert visit.is_public(address) is ADDRESSES[address]


def test_a_proxy_guards_its_own_network() -> None:
    through = visit.Visit(end=0.0)
    for peer in (None, None):
        through.admit(peer)
    with pytest.raises(visit.PrivateAddress):
        through.admit(("127.0.0.1", 80))  # past the proxy


# Slow servers.


def dripping(handler: Handler, data: bytes, start: int, last: int) -> None:
    """Two bytes of the body, and no more, as long as the client stays."""
    handler.wfile.write(
        f"HTTP/1.1 206 x\r\nContent-Length: {last - start + 1}\r\n"
        f"Content-Range: bytes {start}-{last}/{len(data)}\r\n\r\n".encode()
    )
    drip(handler, data[start : last + 1])


def dripping_headers(handler: Handler, _data: bytes, _start: int, _last: int) -> None:
    handler.wfile.write(b"HTTP/1.1 206 x\r\nA: ")
    drip(handler, b"x" * 60_000)


def drip(handler: Handler, text: bytes) -> None:
    handler.close_connection = True
    for byte in text:
        try:
            handler.wfile.write(bytes([byte]))
        except OSError:
            return
        time.sleep(0.01)


@pytest.mark.parametrize("answer", [dripping, dripping_headers])
@pytest.mark.parametrize("limit", ["PATIENCE", "SECONDS"])
def test_an_answer_has_so_much_time(
    folder: Path, answer: Answer, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, limit, 0.2)
    monkeypatch.setattr(http, "BYTES_PER_SECOND", 1 << 30)
    with serve(folder, answer) as server, pytest.raises(InputError, match="takes too long"):
        open_anywhere(f"{server.url}/one.safetensors")


def test_one_failure_ends_all_reads(folder: Path) -> None:
    """End both reads soon where one of two shards drips and the other is refused."""

    def answer(handler: Handler, data: bytes, start: int, last: int) -> None:
        if "00001" in handler.path:
            waiting.set()
            dripping(handler, data, start, last)
        elif "00002" in handler.path:
            waiting.wait()
            handler.refuse(403)
        else:
            ranges(handler, data, start, last)

    waiting = threading.Event()
    with serve(folder, answer) as server, pytest.raises(InputError):
        open_anywhere(server.url)


# What a server says of sizes and numbers.


@pytest.mark.parametrize("size", [1 << 43, 15 * 10**12, 10**17])
def test_a_size_that_is_a_lie(folder: Path, size: int) -> None:
    def lying(handler: Handler, data: bytes, start: int, last: int) -> None:
        whole = f"bytes {start}-{last}/{size}"
        handler.send(206, data[start : last + 1], Content_Range=whole)

    with serve(folder, lying) as server, pytest.raises(InputError):
        open_anywhere(f"{server.url}/one.safetensors")


def test_too_many_shards(server: Server, folder: Path) -> None:
    index = {"weight_map": {f"w{n}": f"{n}.safetensors" for n in range(4097)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(MalformedFile, match="4097 files; at most 4096 are read") as caught:
        open_anywhere(server.url)
    assert caught.value.file == f"{server.url}/model.safetensors.index.json"
    assert len(server.asked) == 1
