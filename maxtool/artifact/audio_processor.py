"""``preprocessor_config.json`` of a model of speech: how samples become spectrograms.

The keys and the defaults are those of transformers' feature extractor of Whisper.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from maxtool.artifact.image_processor import FILE, WHOLE
from maxtool.errors import ConfigurationError
from maxtool.runtime.loader.audio_spec import AudioSpec, audio_spec
from maxtool.weights.jsonfile import read_object

MOST = 1 << 23  # bytes of the file: older ones have the filters, too
CLASS = "WhisperFeatureExtractor"
NAMED = "feature_extractor_type"
# Keys, what they are called here, and what the class takes for one that is absent.
KEYS: Mapping[str, tuple[str, int]] = {
    "sampling_rate": ("rate", 16_000),
    "n_fft": ("window", 400),
    "hop_length": ("hop", 160),
    "feature_size": ("bands", 80),
    "chunk_length": ("seconds", 30),
}
# What makes other spectrograms of the same samples.
EXPECTED: Mapping[str, object] = {"padding_value": 0.0, "dither": 0.0, "padding_side": "right"}
# What follows from the others, or is computed anew.
IGNORED = frozenset(
    ["mel_filters", "n_samples", "nb_max_frames", "processor_class", "return_attention_mask"]
)


def read(folder: Path) -> AudioSpec | None:
    """The numbers of a folder's feature extractor; None where it has none.

    Raises:
        ConfigurationError: Listing what is not understood.
    """
    file = folder / FILE
    if file.is_file():
        return _spec(read_object(file, most=MOST), file)
    file = folder / WHOLE
    whole = read_object(file, most=MOST) if file.is_file() else {}
    inner = whole.get("feature_extractor")
    return _spec(inner, file) if isinstance(inner, dict) else None


def _spec(content: Mapping[str, object], file: Path) -> AudioSpec:
    said = {key: value for key, value in content.items() if value is not None}
    kind = said.pop(NAMED, CLASS)
    problems = [] if kind == CLASS else [f"the class {kind!r:.60}"]
    known = KEYS.keys() | EXPECTED.keys() | IGNORED
    problems += [f"{key} = {said[key]!r:.60}" for key in sorted(said.keys() - known) if said[key]]
    problems += [
        f"{key} = {said[key]!r:.60}, and only {usual!r} is supported"
        for key, usual in EXPECTED.items()
        if said.get(key, usual) != usual
    ]
    try:
        spec = audio_spec({ours: said.get(key, usual) for key, (ours, usual) in KEYS.items()})
    except ValueError as error:
        problems.append(str(error))
    if problems:
        raise ConfigurationError(
            "the preprocessing of sounds is not understood",
            file=file,
            problems=problems,
            hint=f"known is transformers' {CLASS}",
        )
    return spec
