"""Sounds in files become the spectrograms that transformers makes of them; others are refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.artifact import audio_processor
from maxtool.errors import ConfigurationError
from maxtool.runtime.loader import BadInput
from maxtool.runtime.loader.audio_spec import AudioSpec, audio_spec
from maxtool.runtime.loader.log_mel import log_mel
from maxtool.runtime.loader.resampling import BETA, ROLLOFF, ZEROS, resampled
from maxtool.runtime.loader.wav_files import read_wav
from tests.data.speech_files import sound, wav

RECORDED = dict(np.load(Path(__file__).resolve().parents[1] / "data" / "spectrograms.npz"))
OPTIONS: dict[str, Any] = json.loads(RECORDED.pop("options").tobytes())
RATE = 16_000


def read(folder: Path, **content: Any) -> AudioSpec | None:
    (folder / "preprocessor_config.json").write_text(json.dumps(content))
    return audio_processor.read(folder)


@pytest.mark.parametrize("case", OPTIONS)
@pytest.mark.parametrize("length", ["short", "long"])
def test_spectrograms_are_those_of_transformers(case: str, length: str, tmp_path: Path) -> None:
    spec = read(tmp_path, **OPTIONS[case])
    assert spec is not None
    samples = sound(1.3 * spec.seconds, 11, spec.rate).astype(np.float32) / 32768
    some = samples[: len(samples) // 3] if length == "short" else samples
    found = log_mel(np.pad(some, (0, max(0, spec.samples - len(some)))), spec)
    for kind, allowed in (("exact", 1e-6), ("quick", 1e-5)):
        expected = RECORDED[f"{case}/{length}/{kind}"]
        np.testing.assert_allclose(found[:, ::68], expected, rtol=0, atol=allowed)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"feature_extractor_type": "SpeechT5FeatureExtractor"}, "the class 'SpeechT5"),
        ({"dither": 0.1}, "dither = 0.1, and only 0.0"),
        ({"do_normalize": True}, "do_normalize = True"),
        ({"hop_length": 0}, "'hop' is 0"),
        ({"n_fft": "many"}, "'window' is 'many'"),
        ({"chunk_length": 1, "n_fft": 16384}, "too few"),
    ],
)
def test_extractors_that_are_refused(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        read(tmp_path, **changes)
    assert problem in str(refusal.value)


def test_an_extractor_within_a_processor(tmp_path: Path) -> None:
    assert audio_processor.read(tmp_path) is None
    inner = {"feature_extractor": {"feature_size": 128, "mel_filters": [[1.0]]}}
    (tmp_path / "processor_config.json").write_text(json.dumps(inner))
    assert audio_processor.read(tmp_path) == AudioSpec(16000, 400, 160, 128, 30)


NUMBERS = sound(0.01, 3).astype(np.int64).reshape(-1, 2)
EXTENSIBLE = struct.pack("<HHI", 32, 0, 3) + struct.pack("<H", 3)
SUBTYPE = bytes.fromhex("000000001000800000aa00389b71")
STORED = {
    "8 bits": ((NUMBERS // 256 + 128).astype("u1"), 1, NUMBERS // 256 / 128),
    "16 bits": (NUMBERS.astype("<i2"), 1, NUMBERS / 32768),
    "32 bits": ((NUMBERS * 65536 + 7).astype("<i4"), 1, (NUMBERS * 65536 + 7) / 2**31),
    "floats": ((NUMBERS / 1000).astype("<f4"), 3, NUMBERS / 1000),
    "wide floats": ((NUMBERS / 1000).astype("<f8"), 3, NUMBERS / 1000),
}


def written(folder: Path, content: bytes) -> Path:
    (folder / "x.wav").write_bytes(content)
    return folder / "x.wav"


@pytest.mark.parametrize("kind", STORED)
def test_kinds_of_samples(kind: str, tmp_path: Path) -> None:
    stored, number, expected = STORED[kind]
    file = written(tmp_path, wav(stored, 44_100, kind=number, channels=2))
    samples, rate = read_wav(file)
    assert (samples.dtype, rate) == (np.float32, 44_100)
    np.testing.assert_allclose(samples, expected.mean(1), atol=1e-7)


def test_24_bits_and_extensible_headers(tmp_path: Path) -> None:
    raw = b"".join(int(n * 256 + 5).to_bytes(3, "little", signed=True) for n in NUMBERS.ravel())
    head = struct.pack("<HHIIHH", 0xFFFE, 1, RATE, RATE * 3, 3, 24)
    head += struct.pack("<HHI", 22, 24, 4) + struct.pack("<H", 1) + SUBTYPE
    parts = b"fmt " + struct.pack("<I", 40) + head + b"LIST" + struct.pack("<I", 3) + b"abc\0"
    parts += b"data" + struct.pack("<I", 0xFFFFFFFF) + raw  # as written to a pipe
    samples, _ = read_wav(written(tmp_path, b"RIFF\xff\xff\xff\xffWAVE" + parts))
    np.testing.assert_allclose(samples, (NUMBERS.ravel() * 256 + 5) / 2**23, atol=1e-7)


WHOLE = wav(NUMBERS.astype("<i2"), channels=2)


def header(**changes: int) -> bytes:
    """The file with other numbers in its format."""
    places = {"kind": 20, "channels": 22, "rate": 24, "align": 32, "bits": 34}
    content = bytearray(WHOLE)
    for name, value in changes.items():
        struct.pack_into("<I" if name == "rate" else "<H", content, places[name], value)
    return bytes(content)


HOSTILE = {
    "empty": (b"", "does not begin as a WAV file"),
    "another format": (b"fLaC" + bytes(40), "does not begin as a WAV file"),
    "no samples": (WHOLE[:36], "it has no samples"),
    "samples first": (WHOLE[:12] + WHOLE[36:], "before their format"),
    "cut short": (WHOLE[:-5], "it was cut short"),
    "a short format": (WHOLE[:16] + struct.pack("<I", 4) + WHOLE[20:24], "takes 4 bytes"),
    "no channels": (header(channels=0), "0 channels"),
    "many channels": (header(channels=65, align=130), "65 channels"),
    "another alignment": (header(align=3), "2 channels of 16 bits in 3 bytes"),
    "another kind": (header(kind=2), "samples of kind 2 with 16 bits"),
    "other bits": (header(bits=12), "samples of kind 1 with 12 bits"),
    "no rate": (header(rate=0), "0 samples a second"),
    "a wild rate": (header(rate=2**32 - 1), "4294967295 samples a second"),
    "not a number": (wav(np.full(9, np.nan, "<f4"), kind=3), "not a finite number"),
    "a signalling NaN": (wav(np.full(9, 0x7F800001, "<u4"), kind=3), "not a finite number"),
    "too large": (wav(np.full(9, 1e300, "<f8"), kind=3), "not a finite number"),
    "many parts": (WHOLE[:12] + b"junk\0\0\0\0" * 2000 + WHOLE[12:], "it has no samples"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files(kind: str, tmp_path: Path) -> None:
    content, problem = HOSTILE[kind]
    file = written(tmp_path, content)
    with pytest.raises(BadInput, match=problem) as refusal:
        read_wav(file)
    assert refusal.value.file == str(file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.wav", tmp_path):
        with pytest.raises(BadInput, match="the sound cannot be read"):
            read_wav(path)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_files(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, 50))] = data.draw(st.integers(0, 255))
    file = written(tmp_path_factory.getbasetemp(), content[: data.draw(st.integers(0, len(WHOLE)))])
    try:
        samples, _ = read_wav(file)
        assert np.isfinite(samples).all()
    except BadInput as refusal:
        assert refusal.file == str(file)


def tone(frequency: float, rate: int, count: int) -> Any:
    return np.sin(2 * np.pi * frequency * np.arange(count) / rate)


@pytest.mark.parametrize("rate", [8000, 11_025, 22_050, 44_100, 48_000, 12_350])
def test_resampled_tones(rate: int) -> None:
    """Keep what both rates carry, and lose what the lower one does not."""
    count, inside = rate // 2, slice(1000, -1000)
    found = resampled(tone(1000, rate, count).astype(np.float32), rate, RATE)
    assert len(found) == -(-count * RATE // rate)
    np.testing.assert_allclose(found[inside], tone(1000, RATE, len(found))[inside], atol=1e-5)
    if rate > RATE:
        high = resampled(tone(8500, rate, count).astype(np.float32), rate, RATE)
        assert np.abs(high[inside]).max() < 1e-4
        passed = resampled(tone(6800, rate, count).astype(np.float32), rate, RATE)
        assert np.abs(passed[inside]).max() > 0.98


def test_resampling_begins_where_the_sound_does() -> None:
    impulse = np.zeros(301, np.float32)
    impulse[[0, 150]] = 1
    found = resampled(impulse, RATE // 2, RATE)
    assert found[290:310].argmax() == 10
    assert found[:20].argmax() == 0
    assert resampled(impulse, RATE, RATE) is impulse


@pytest.mark.parametrize("rate", [8000, 24_000, 48_000])
def test_resampling_is_a_filter_at_the_common_rate(rate: int) -> None:
    """Zeros between samples, one filter over all, and every few of its results."""
    up, down = RATE // np.gcd(rate, RATE), rate // np.gcd(rate, RATE)
    reach = ZEROS * max(up, down)
    cut = ROLLOFF / max(up, down)
    taps = cut * up * np.sinc(cut * np.arange(-reach, reach + 1)) * np.kaiser(2 * reach + 1, BETA)
    samples = sound(0.05, 5, rate) / 32768
    spread = np.zeros(len(samples) * up)
    spread[::up] = samples
    expected = np.convolve(spread, taps)[reach : reach + len(spread)][::down]
    found = resampled(samples.astype(np.float32), rate, RATE)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    "changes", [{"rate": 0}, {"bands": True}, {"seconds": 601}, {"hop": 2.5}, {"window": None}]
)
def test_numbers_of_a_manifest_that_are_refused(changes: dict[str, Any]) -> None:
    usual = {"rate": 16000, "window": 400, "hop": 160, "bands": 80, "seconds": 30}
    with pytest.raises(ValueError, match=f"'{next(iter(changes))}' is"):
        audio_spec({**usual, **changes})
