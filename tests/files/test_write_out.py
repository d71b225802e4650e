"""Advice on what is written: of no effect on what a file holds in the end, and never an error."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from maxtool.files import write_out
from maxtool.files.write_out import begin_write_out, reserve


def test_a_file_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with file.open("wb") as stream:
        stream.write(bytes(range(256)) * 64)
        stream.flush()
        begin_write_out(stream.fileno(), 0, 1 << 14)
        begin_write_out(stream.fileno(), 1 << 20, 1 << 14)  # beyond its end
    assert file.read_bytes() == bytes(range(256)) * 64


def test_room_is_zeros_until_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with file.open("wb") as stream:
        reserve(stream.fileno(), 10_000)
        stream.write(b"begin")
        stream.truncate(20_000)
    assert file.read_bytes() == b"begin" + bytes(19_995)


def test_room_that_there_is_not_is_for_writing_to_tell(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as stream:
        reserve(stream.fileno(), 1 << 62)
        reserve(stream.fileno(), 0)
        stream.write(b"content")
        stream.truncate(7)
    assert (tmp_path / "file").read_bytes() == b"content"


def test_what_has_no_disk_is_passed_over() -> None:
    reader, writer = os.pipe()
    begin_write_out(writer, 0, 10)
    reserve(writer, 10)
    os.close(reader)
    os.close(writer)
    begin_write_out(writer, 0, 10)


def test_systems_without_the_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    write_out._call.cache_clear()
    try:
        with (tmp_path / "file").open("wb") as stream:
            begin_write_out(stream.fileno(), 0, 10)
    finally:
        write_out._call.cache_clear()
