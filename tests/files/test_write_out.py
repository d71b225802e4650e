"""Advice to begin writing to the disk: of no effect on what a file holds, and never an error."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from maxtool.files import write_out
from maxtool.files.write_out import begin_write_out


def test_a_file_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with file.open("wb") as stream:
        stream.write(bytes(range(256)) * 64)
        stream.flush()
        begin_write_out(stream.fileno(), 0, 1 << 14)
        begin_write_out(stream.fileno(), 1 << 20, 1 << 14)  # beyond its end
    assert file.read_bytes() == bytes(range(256)) * 64


def test_what_has_no_disk_is_passed_over() -> None:
    reader, writer = os.pipe()
    begin_write_out(writer, 0, 10)
    os.close(reader)
    os.close(writer)
    begin_write_out(writer, 0, 10)


def test_systems_without_the_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    write_out._sync_file_range.cache_clear()
    try:
        with (tmp_path / "file").open("wb") as stream:
            begin_write_out(stream.fileno(), 0, 10)
    finally:
        write_out._sync_file_range.cache_clear()
