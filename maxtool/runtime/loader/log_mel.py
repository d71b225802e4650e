"""Samples as a log-mel spectrogram, equal to that of transformers' feature extractor of Whisper."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .audio_spec import AudioSpec
from .memory import Array

LEAST = 1e-10  # energy of a band
RANGE = 8.0  # powers of ten that lie between the loudest band and the least
FRAMES = 2048  # transformed at once
# Slaney's mel scale: linear up to a frequency in hertz, then logarithmic.
LINEAR_TO, HERTZ_PER_MEL, STEP = 1000.0, 200.0 / 3, np.log(6.4) / 27
HIGHEST = 8000.0  # hertz of the last band, whatever the rate


def log_mel(samples: Array, spec: AudioSpec) -> Array:
    """The spectrogram, float32 ``[bands, frames]``; a frame for each whole hop of the samples."""
    half, frames = spec.window // 2, len(samples) // spec.hop
    padded = np.pad(samples.astype(np.float64), half, mode="reflect")
    windows = sliding_window_view(padded, spec.window)[:: spec.hop]
    shape = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(spec.window) / spec.window)  # Hann's
    result = np.zeros((spec.bands, frames), np.float32)
    for start in range(0, frames, FRAMES):
        some = windows[start : min(start + FRAMES, frames)]
        energy = np.abs(np.fft.rfft(some * shape)) ** 2
        bands = energy @ mel_filters(spec)
        result[:, start : start + len(some)] = np.log10(np.maximum(bands, LEAST)).T
    np.maximum(result, result.max(initial=-np.inf) - np.float32(RANGE), out=result)
    return (result + np.float32(4)) / np.float32(4)


@cache
def mel_filters(spec: AudioSpec) -> Array:
    """Triangles of equal area over the frequencies of a transform, ``[frequencies, bands]``."""
    frequencies = np.linspace(0, spec.rate // 2, spec.window // 2 + 1)
    corners = _hertz(np.linspace(0, _mels(HIGHEST), spec.bands + 2))
    widths = np.diff(corners)
    slopes = corners - frequencies[:, None]
    rising, falling = -slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]
    triangles: Array = np.maximum(0, np.minimum(rising, falling))
    return triangles * (2 / (corners[2:] - corners[:-2]))


def _mels(hertz: float) -> float:
    above = LINEAR_TO / HERTZ_PER_MEL + np.log(max(hertz, LINEAR_TO) / LINEAR_TO) / STEP
    return float(above if hertz >= LINEAR_TO else hertz / HERTZ_PER_MEL)


def _hertz(mels: Array) -> Array:
    bend = LINEAR_TO / HERTZ_PER_MEL
    above = LINEAR_TO * np.exp(STEP * (np.maximum(mels, bend) - bend))
    return np.where(mels >= bend, above, mels * HERTZ_PER_MEL)
