"""Files brought from servers that break off, replace them, or tell checksums and versions."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from maxtool import sources
from maxtool.cli.progress import Meter
from tests.cli.url_models import (
    WEIGHTS,
    asked,
    convert,
    expected,
    incomplete,
    is_weights,
    model,
    server,
    tagged,
)
from tests.weights.range_server import Answer, Handler, Server, ranges

__all__ = ["expected", "model", "server"]  # fixtures


def test_a_server_without_ranges(server: Server, expected: bytes) -> None:
    attempts: list[str | None] = []

    def whole(handler: Handler, data: bytes, _start: int, _last: int) -> None:
        attempts.append(handler.headers.get("Range"))
        if attempts.count(None) == 1:
            handler.send(200, data[:50], Content_Length=len(data))
            handler.close_connection = True
        else:
            handler.send(200, data)

    server.answer = whole
    result = convert(f"{server.url}/model")
    assert result.exit_code == 0, result.output
    assert Path("out.gguf").read_bytes() == expected
    assert json.loads(result.stdout)["origin"]["files"][WEIGHTS]["version"] is None
    before = attempts.count(None)
    assert convert(f"{server.url}/model").exit_code == 0
    assert attempts.count(None) > before, "nothing tells that it is the same: it is fetched anew"


def test_a_dropped_connection_is_resumed(server: Server, expected: bytes, tmp_path: Path) -> None:
    dropped: list[int] = []

    def drop(handler: Handler, data: bytes, start: int, last: int) -> None:
        if last > 1000 and not dropped:
            dropped.append(start)
            span = f"bytes {start}-{last}/{len(data)}"
            handler.send(206, data[:99], Content_Length=last + 1 - start, Content_Range=span)
            handler.close_connection = True
        else:
            tagged(handler, data, start, last)

    server.answer = drop
    assert convert(f"{server.url}/model").exit_code == 0
    assert dropped
    assert Path("out.gguf").read_bytes() == expected
    assert not incomplete(tmp_path)


def test_what_another_process_left_goes_on(
    server: Server, monkeypatch: pytest.MonkeyPatch, expected: bytes, tmp_path: Path
) -> None:
    monkeypatch.setattr("maxtool.sources.transfer.PIECE", 1 << 16)

    def stop(handler: Handler, data: bytes, start: int, last: int) -> None:
        if start >= 1 << 16:
            handler.refuse(500)
        else:
            tagged(handler, data, start, last)

    server.answer = stop
    assert convert(f"{server.url}/model").exit_code == 3
    (part,) = incomplete(tmp_path)
    assert part.stat().st_size == 1 << 16
    server.answer = tagged
    server.asked.clear()
    assert convert(f"{server.url}/model").exit_code == 0
    assert all(int(span[6:].partition("-")[0]) >= 1 << 16 for span in asked(server))
    assert Path("out.gguf").read_bytes() == expected


@pytest.mark.parametrize("honours_versions", [True, False])
def test_a_file_that_is_replaced_midway(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, honours_versions: bool
) -> None:
    monkeypatch.setattr("maxtool.sources.transfer.PIECE", 1 << 16)

    def replaced(handler: Handler, data: bytes, start: int, last: int) -> None:
        if start and not honours_versions:
            del handler.headers["If-Range"]
        tagged(handler, data[:-1] + b"!" if start else data, start, last)

    server.answer = replaced
    result = convert(f"{server.url}/model")
    assert result.exit_code == 3
    assert "was replaced while it was read" in result.stderr
    assert not incomplete(tmp_path)
    assert not Path("out.gguf").exists()


def encoded(name: str, data: bytes) -> str:
    return base64.b64encode(hashlib.new(name, data).digest()).decode()


HEADERS: dict[str, Any] = {
    "Repr-Digest": lambda data: f"sha-256=:{encoded('sha256', data)}:",
    "Digest": lambda data: f"md5=x, SHA-256={encoded('sha256', data)}",
    "Content-MD5": lambda data: encoded("md5", data),
    "x-goog-hash": lambda data: f"crc32c=AAAA, md5={encoded('md5', data)}",
    "x-ms-blob-content-md5": lambda data: encoded("md5", data),
    "x-amz-checksum-sha256": lambda data: encoded("sha256", data),
    "x-amz-checksum-sha1": lambda data: encoded("sha1", data),
}


@pytest.mark.parametrize("header", HEADERS)
def test_checksums_of_servers_are_checked(server: Server, tmp_path: Path, header: str) -> None:
    def announcing(handler: Handler, data: bytes, start: int, last: int) -> None:
        tagged(handler, data, start, last, **{header: HEADERS[header](announced or data)})

    server.answer = announcing
    announced = b""
    assert convert(f"{server.url}/model").exit_code == 0
    shutil.rmtree(tmp_path / "cache")
    announced = b"another"
    result = convert(f"{server.url}/model")
    assert result.exit_code == 3
    assert "what came is not the file that is listed" in result.stderr
    assert not incomplete(tmp_path)


def test_checksums_of_parts_and_of_parts_of_objects_are_not_taken(server: Server) -> None:
    def odd(handler: Handler, data: bytes, start: int, last: int) -> None:
        part = data[start : last + 1]
        more = {"Content-MD5": encoded("md5", part), "x-amz-checksum-sha256": "YWI=-2"}
        tagged(handler, data, start, last, **more, **{"x-amz-checksum-type": "COMPOSITE"})

    server.answer = odd
    assert convert(f"{server.url}/model").exit_code == 0


@pytest.mark.parametrize("encryption", ["AES256", "aws:kms"])
def test_the_etag_of_s3_is_a_checksum_unless_keys_encrypt(server: Server, encryption: str) -> None:
    def of_s3(handler: Handler, data: bytes, start: int, last: int) -> None:
        span = f"bytes {start}-{last}/{len(data)}"
        more = {"x-amz-request-id": "1", "x-amz-server-side-encryption": encryption}
        tag = f'"{"0" * 32}"'
        handler.send(206, data[start : last + 1], Content_Range=span, ETag=tag, **more)

    server.answer = of_s3
    assert convert(f"{server.url}/model").exit_code == (3 if encryption == "AES256" else 0)


def test_a_busy_server_is_asked_again(server: Server, expected: bytes) -> None:
    busy = threading.Semaphore(2)

    def answer(handler: Handler, data: bytes, start: int, last: int) -> None:
        if busy.acquire(blocking=False):
            handler.refuse(429, Retry_After="0")
        else:
            tagged(handler, data, start, last)

    server.answer = answer
    assert convert(f"{server.url}/model").exit_code == 0
    assert Path("out.gguf").read_bytes() == expected


def test_ranges_of_servers_that_say_no_version(server: Server, expected: bytes) -> None:
    server.answer = ranges
    assert convert(f"{server.url}/model").exit_code == 0
    assert Path("out.gguf").read_bytes() == expected


def without_locks(*_: object) -> None:
    raise OSError(errno.ENOSYS, "Function not implemented")


@pytest.mark.parametrize("said", [tagged, ranges], ids=["a version", "no version"])
def test_two_at_once_where_there_are_no_locks(
    server: Server, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Answer
) -> None:
    monkeypatch.setattr("maxtool.sources.transfer.PIECE", 1 << 13)
    monkeypatch.setattr("maxtool.sources.locking.fcntl.flock", without_locks)
    both = threading.Barrier(2, timeout=10)

    def together(handler: Handler, data: bytes, start: int, last: int) -> None:
        if start == 0 < last and len(data) > 1 << 16:
            both.wait()
        said(handler, data, start, last)

    def bring() -> bytes:
        url = f"{server.url}/model/{WEIGHTS}"
        return sources.bring(url, lambda _: nullcontext(Meter()), "file").path.read_bytes()

    server.answer = together
    with ThreadPoolExecutor(2) as pool:
        brought = [pool.submit(bring) for _ in range(2)]
    assert {one.result() for one in brought} == {(model / WEIGHTS).read_bytes()}
    assert not incomplete(tmp_path)


def test_what_another_process_writes_to_a_part_is_not_kept(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meddled(handler: Handler, data: bytes, start: int, last: int) -> None:
        for part in incomplete(tmp_path):
            with part.open("ab") as stream:
                stream.write(b"more")
        tagged(handler, data, start, last)

    monkeypatch.setattr("maxtool.sources.transfer.PIECE", 1 << 16)
    server.answer = meddled
    result = convert(f"{server.url}/model")
    assert result.exit_code == 3
    assert "bytes, and the file has" in result.stderr
    assert not incomplete(tmp_path)
    server.answer = tagged
    assert convert(f"{server.url}/model").exit_code == 0


def test_contents_of_another_size_are_brought_again(
    server: Server, tmp_path: Path, expected: bytes
) -> None:
    assert convert(f"{server.url}/model").exit_code == 0
    (blob,) = filter(is_weights, (tmp_path / "cache").rglob("blobs/*"))
    with blob.open("ab") as stream:
        stream.write(b"more")
    assert convert(f"{server.url}/model").exit_code == 0
    assert Path("out.gguf").read_bytes() == expected


def test_what_killed_processes_left_is_removed_after_a_day(server: Server, tmp_path: Path) -> None:
    server.answer = ranges  # tells no versions, by which parts would have names
    assert convert(f"{server.url}/model").exit_code == 0
    (blobs,) = (tmp_path / "cache").rglob("blobs")
    old, young = (blobs / f"{name * 32}.maxtool.new" for name in "ab")
    for left, age in ((old, 90_000), (young, 3000)):
        left.write_bytes(b"part")
        os.utime(left, (time.time() - age,) * 2)
    assert convert(f"{server.url}/model").exit_code == 0
    assert incomplete(tmp_path) == [young]


def dated(
    handler: Handler, data: bytes, start: int, last: int, modified: float = 1e9, tag: str = ""
) -> None:
    """Answer with a time, in seconds since 1970."""
    more = {"Last-Modified": formatdate(modified, usegmt=True)} | ({"ETag": tag} if tag else {})
    span = f"bytes {start}-{last}/{len(data)}"
    handler.send(206, data[start : last + 1], Content_Range=span, **more)


@pytest.mark.parametrize("tag", ["", 'W/"1"'])
@pytest.mark.parametrize("age", [-100, 0, 70])
def test_a_time_is_a_version_once_it_is_past(
    server: Server, expected: bytes, age: int, tag: str
) -> None:
    modified = time.time() - age
    server.answer = partial(dated, modified=modified, tag=tag)
    brought = []
    for _ in range(2):
        server.asked.clear()
        result = convert(f"{server.url}/model")
        assert result.exit_code == 0, result.output
        brought.append(bool(asked(server)))
    assert brought == [True, age < 60]
    assert Path("out.gguf").read_bytes() == expected
    assert age >= 60 or not any("If-Range" in headers for _, headers in server.asked)


def test_a_file_with_a_recent_time_that_is_replaced_midway(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maxtool.sources.transfer.PIECE", 1 << 16)
    now = time.time()

    def replaced(handler: Handler, data: bytes, start: int, last: int) -> None:
        dated(handler, data, start, last, now + bool(start))

    server.answer = replaced
    result = convert(f"{server.url}/model")
    assert result.exit_code == 3
    assert "was replaced while it was read" in result.stderr


def test_a_part_need_not_repeat_what_it_is_of(server: Server, expected: bytes) -> None:
    """RFC 9110, section 15.3.7: nothing that the request had in If-Range."""

    def terse(handler: Handler, data: bytes, start: int, last: int) -> None:
        if "If-Range" in handler.headers:
            ranges(handler, data, start, last)
        else:
            dated(handler, data, start, last)

    server.answer = terse
    result = convert(f"{server.url}/model")
    assert result.exit_code == 0, result.output
    assert Path("out.gguf").read_bytes() == expected
    assert asked(server)


def test_a_part_may_repeat_another_header(server: Server, expected: bytes) -> None:
    def other(handler: Handler, data: bytes, start: int, last: int) -> None:
        dated(handler, data, start, last, tag="" if "If-Range" in handler.headers else '"1"')

    server.answer = other
    assert convert(f"{server.url}/model").exit_code == 0
    assert Path("out.gguf").read_bytes() == expected
