"""WAV files: formats, channels and parts."""

from __future__ import annotations

import numpy as np
from harness import Target, put, run

from maxtool.runtime.loader.resampling import resampled
from maxtool.runtime.loader.wav_files import read_wav
from tests.data.speech_files import sound, wav

RATE = 16_000


def seeds() -> list[bytes]:
    samples = sound(0.01, 1)
    plain = wav(samples)
    wide = wav(samples.astype("<f4"), 44_100, kind=3, channels=2)
    parts = plain[:12] + b"LIST\3\0\0\0abc\0" + plain[12:]
    return [plain, wide, parts, plain[:40] + b"\xff\xff\xff\xff" + plain[44:]]


def read(data: bytes) -> None:
    samples, rate = read_wav(put(("x.wav",), data))
    if len(samples) and not np.isfinite(resampled(samples[:64], rate, RATE)).all():
        raise ArithmeticError("a finite sound became an infinite one")


TARGET = Target(seeds, read, [b"RIFF", b"WAVE", b"fmt ", b"data", b"\xfe\xff", b"\xff\xff\xff\xff"])

if __name__ == "__main__":
    run(TARGET)
