"""Pieces of what is written: whole huge pages, and together the same bytes."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from maxtool.files.huge_pages import pieces


class Writes(io.RawIOBase):
    """A file that notes where each write begins and ends."""

    def __init__(self) -> None:
        self.ends = [0]
        self.data = b""

    def writable(self) -> bool:
        """Return true."""
        return True

    def write(self, data: object) -> int:
        """Note a write."""
        self.data += bytes(data)  # type: ignore[call-overload]
        self.ends.append(len(self.data))
        return self.ends[-1] - self.ends[-2]


@given(st.lists(st.integers(0, 100)), st.integers(1, 40))
def test_a_buffered_stream_writes_whole_pages(sizes: list[int], page: int) -> None:
    raw, whole = Writes(), b""
    with io.BufferedWriter(raw, page) as stream:
        for number, size in enumerate(sizes):
            part = bytes([number % 256]) * size
            for piece in pieces(memoryview(part), len(whole), page):
                stream.write(piece)
            whole += part
        stream.flush()
        assert raw.data == whole
        assert raw.ends[:-1] == list(range(0, len(whole), page)) or not whole
