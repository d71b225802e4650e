"""A headless browser, and the pixels of its screenshots."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

SECONDS = 120
SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {2: 3, 6: 4}  # by the colour type: RGB, and RGB with alpha


def needed() -> str:
    """The path of Debian's chromium; the test is skipped where it is not installed."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("needs chromium (Debian: apt-get install chromium)")
    return path


def screenshot(page: Path, width: int, height: int, *, dark: bool = False) -> NDArray[np.uint8]:
    """The pixels of a page, ``[height, width, 3]``, in a browser without a network."""
    image = page.with_suffix(f".{width}.png")
    command = [
        *(needed(), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        *("--force-color-profile=srgb", "--host-resolver-rules=MAP * ~NOTFOUND"),
        f"--user-data-dir={page.parent / 'profile'}",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        *(f"--window-size={width},{height}", f"--screenshot={image}", page.as_uri()),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
    return decoded(image.read_bytes())


def decoded(data: bytes) -> NDArray[np.uint8]:
    """The pixels of a PNG file of eight bits, not interlaced, without its alpha."""
    assert data.startswith(SIGNATURE)
    chunks = list(_chunks(data))
    width, height, bits, colour, *_, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    assert (bits, interlaced) == (8, 0)
    channels = CHANNELS[colour]
    raw = zlib.decompress(b"".join(content for kind, content in chunks if kind == b"IDAT"))
    rows = np.frombuffer(raw, np.uint8).reshape(height, 1 + width * channels)
    pixels = np.zeros((height + 1, width, channels), np.uint8)
    for index, row in enumerate(rows):
        pixels[index + 1] = _unfiltered(row[0], row[1:].reshape(width, channels), pixels[index])
    return pixels[1:, :, :3]


def _chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    at, chunks = len(SIGNATURE), []
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        chunks.append((kind, data[at + 8 : at + 8 + size]))
        at += 12 + size
    return chunks


def _unfiltered(kind: int, row: NDArray[np.uint8], above: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Undo the filter of a row: none, left, up, the mean of both, or Paeth's choice of three."""
    if kind == 0:
        return row
    if kind == 1:
        return np.cumsum(row, axis=0, dtype=np.uint8)
    if kind == 2:
        return row + above
    result = np.zeros_like(row)
    left, corner = [0] * row.shape[1], [0] * row.shape[1]
    for x, (values, ups) in enumerate(zip(row.tolist(), above.tolist(), strict=True)):
        predict = _mean if kind == 3 else _paeth
        parts = zip(values, left, ups, corner, strict=True)
        left = [(value + predict(*around)) & 255 for value, *around in parts]
        result[x], corner = left, ups
    return result


def _mean(left: int, up: int, _: int) -> int:
    return (left + up) // 2


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((left, up, corner), key=lambda one: abs(guess - one))
