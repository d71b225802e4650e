"""Numbers of the spectrogram that a model of speech takes, as the manifest says them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .manifest_fields import given

# The largest value of each, which bounds the memory that one window takes.
MOST = {"rate": 192_000, "window": 16_384, "hop": 16_384, "bands": 1024, "seconds": 600}


@dataclass(frozen=True)
class AudioSpec:
    """A spectrogram: what transformers' feature extractor of Whisper makes of samples."""

    rate: int  # samples of a second
    window: int  # samples of a Fourier transform
    hop: int  # samples from one frame to the next
    bands: int  # of the mel scale
    seconds: int  # that a model looks at at once

    @property
    def samples(self) -> int:
        """Samples that a model looks at at once."""
        return self.seconds * self.rate

    @property
    def frames(self) -> int:
        """Frames that these become."""
        return self.samples // self.hop


def audio_spec(item: Mapping[str, Any]) -> AudioSpec:
    """The numbers that a manifest says; ValueError that names the one that is wrong."""
    spec = AudioSpec(**{field.name: _number(item, field.name) for field in fields(AudioSpec)})
    if spec.frames < 1 or spec.samples <= spec.window:
        raise ValueError(f"{spec.seconds} seconds are too few for 'hop' and 'window'")
    return spec


def _number(item: Mapping[str, Any], key: str) -> int:
    found: int = given(item, key, lambda value: type(value) is int and 1 <= value <= MOST[key])
    return found
