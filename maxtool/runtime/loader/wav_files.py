"""WAV files as the samples of one channel: whole numbers of 8 to 32 bits, and floats.

A header is not believed: each number of it is checked against the others and against the file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from .errors import BadInput, reading
from .memory import Array

KINDS = "WAV files of 8, 16, 24 and 32 bits, and floats of 32 and 64"
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
# What follows the number of the kind in an extensible header.
SUBTYPE = bytes.fromhex("000000001000800000aa00389b71")
TO_THE_END = 0xFFFFFFFF  # the size of a file that was written to a pipe
MOST_CHANNELS, MOST_CHUNKS = 64, 1000
LEAST_RATE, MOST_RATE = 1000, 768_000
FRAMES = 1 << 18  # of all channels, read at once


class WavFormat(NamedTuple):
    """The form in which samples are stored."""

    kind: int  # whole numbers or floats
    channels: int
    rate: int  # frames of a second
    bits: int  # of a sample

    @property
    def frame_bytes(self) -> int:
        """Bytes of the samples of all channels at one time."""
        return self.channels * self.bits // 8


def _unsigned(raw: bytes) -> Array:
    return np.frombuffer(raw, np.uint8).astype(np.float64) / 128 - 1


def _of_24_bits(raw: bytes) -> Array:
    wide = np.zeros((len(raw) // 3, 4), np.uint8)
    wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
    return wide.view("<i4").reshape(-1) / 2.0**31


def _signed(raw: bytes, dtype: str) -> Array:
    values = np.frombuffer(raw, dtype)
    return values / 2.0 ** (8 * values.itemsize - 1)


# What makes numbers from -1 to 1 of bytes.
DECODERS: dict[tuple[int, int], Callable[[bytes], Array]] = {
    (PCM, 8): _unsigned,
    (PCM, 16): lambda raw: _signed(raw, "<i2"),
    (PCM, 24): _of_24_bits,
    (PCM, 32): lambda raw: _signed(raw, "<i4"),
    (FLOAT, 32): lambda raw: np.frombuffer(raw, "<f4").astype(np.float64),
    (FLOAT, 64): lambda raw: np.frombuffer(raw, "<f8"),
}


def read_wav(path: Path) -> tuple[Array, int]:
    """The mean of the channels of a file, float32, and how many samples make a second.

    Raises:
        BadInput: If it is not a WAV file of a known kind, contradicts itself, or is cut short.
    """
    with reading("the sound", path), path.open("rb") as stream:
        try:
            wave, count = _header(stream, path.stat().st_size)
            parts = [_mono(raw, wave) for raw in _frames(stream, wave, count)]
        except ValueError as error:
            hint = f"sounds are {KINDS}; ffmpeg -i SOUND x.wav makes one of any other file"
            raise BadInput(f"not a sound that can be read: {error}", file=path, hint=hint) from None
    return np.concatenate([np.zeros(0, np.float32), *parts]), wave.rate


def _header(stream: BinaryIO, size: int) -> tuple[WavFormat, int]:
    """The format, and the bytes of samples, which the stream stands before then."""
    first = stream.read(12)
    if first[:4] != b"RIFF" or first[8:] != b"WAVE":
        raise ValueError("it does not begin as a WAV file")
    wave = None
    for name, length in _chunks(stream, size):
        if name == b"fmt ":
            wave = _format(stream.read(min(length, 40)))
            stream.seek(length - min(length, 40), 1)
        elif name == b"data":
            if wave is None:
                raise ValueError("samples come before their format")
            return wave, length - length % wave.frame_bytes
        else:
            stream.seek(length, 1)
        stream.seek(length % 2, 1)
    raise ValueError("it has no samples")


def _chunks(stream: BinaryIO, size: int) -> Iterator[tuple[bytes, int]]:
    """Yield names and lengths of parts; whoever takes one leaves the stream behind it."""
    for _ in range(MOST_CHUNKS):
        head = stream.read(8)
        if len(head) < 8:
            return
        length, left = struct.unpack("<I", head[4:])[0], size - stream.tell()
        if head[:4] == b"data" and length == TO_THE_END:
            length = left
        if length > left:
            what = f"the part {head[:4]!r} says {length} bytes"
            raise ValueError(f"{what}, and {max(0, left)} are left: it was cut short")
        yield head[:4], length


def _format(raw: bytes) -> WavFormat:
    if len(raw) < 16:
        raise ValueError(f"its format takes {len(raw)} bytes")
    kind, channels, rate, _, align, bits = struct.unpack("<HHIIHH", raw[:16])
    if kind == EXTENSIBLE and len(raw) >= 40:
        kind = struct.unpack("<H", raw[24:26])[0] if raw[26:] == SUBTYPE else kind
    wave = WavFormat(kind, channels, rate, bits)
    if (kind, bits) not in DECODERS:
        raise ValueError(f"samples of kind {kind} with {bits} bits")
    if not 1 <= channels <= MOST_CHANNELS or align != wave.frame_bytes:
        raise ValueError(f"{channels} channels of {bits} bits in {align} bytes")
    if not LEAST_RATE <= rate <= MOST_RATE:
        raise ValueError(f"{rate} samples a second")
    return wave


def _frames(stream: BinaryIO, wave: WavFormat, count: int) -> Iterator[bytes]:
    most = FRAMES * wave.frame_bytes
    for start in range(0, count, most):
        wanted = min(most, count - start)
        raw = stream.read(wanted)
        if len(raw) < wanted:
            raise ValueError("it became shorter while it was read")
        yield raw


def _mono(raw: bytes, wave: WavFormat) -> Array:
    with np.errstate(all="ignore"):  # what is not finite is refused below
        samples = DECODERS[wave.kind, wave.bits](raw).reshape(-1, wave.channels).mean(1)
    if not np.isfinite(samples).all() or np.abs(samples).max(initial=0) > np.finfo("f4").max:
        raise ValueError("a sample is not a finite number")
    mixed: Array = samples.astype(np.float32)
    return mixed
