"""Record the tokens that transformers writes for sounds, with a tiny Whisper of random weights.

Needs the ``peers`` extra (torch, transformers). It writes ``speech.json`` beside this script: the
shapes of the tensors, and of each case the options and the tokens; of sounds of more than one
window, or with times, of each part where it begins and ends. Each token leads the second by at
least 0.001, so that rounding cannot change it. ``spectrograms.npz`` has some of the numbers that
the feature extractor makes of sounds, by torch in float32 and by NumPy in float64.

    python tests/data/record_speech.py
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import speech_files
import torch
import transformers
from safetensors import safe_open
from transformers import WhisperFeatureExtractor

HERE = Path(__file__).parent
LEAD = 1e-3
CASES: dict[str, dict[str, Any]] = {
    "transcribed": {"seconds": 1.0, "language": "en"},
    "translated": {"seconds": 1.0, "language": "de", "task": "translate", "seed": 1},
    "detected": {"seconds": 0.5, "seed": 2},
    "with times": {"seconds": 1.0, "language": "fr", "times": True, "seed": 3},
    "long": {"seconds": 3.4, "language": "en", "seed": 4},
    "long, detected": {"seconds": 2.13, "seed": 5},
    "long, of one language": {"seconds": 2.5, "english": True, "seed": 6},
    "of one language": {"seconds": 1.0, "english": True, "seed": 7},
}
SPECTROGRAMS: dict[str, dict[str, Any]] = {
    "whisper": {},
    "large": {"feature_size": 128, "chunk_length": 2},
    "other": {
        "feature_size": 9,
        "chunk_length": 1,
        "n_fft": 90,
        "hop_length": 33,
        "sampling_rate": 8000,
    },
}


class Leads(transformers.LogitsProcessor):
    """The least lead of the likeliest token over the second."""

    least = np.inf

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        first, second = scores[0].topk(2).values.tolist()
        self.least = min(self.least, first - second)
        return scores


def shapes() -> dict[str, list[int]]:
    with tempfile.TemporaryDirectory() as name:
        config = transformers.WhisperConfig(**speech_files.CONFIG)
        transformers.WhisperForConditionalGeneration(config).save_pretrained(name)
        with safe_open(Path(name, "model.safetensors"), "np") as opened:
            return {key: list(opened.get_slice(key).get_shape()) for key in opened.keys()}  # noqa: SIM118


def record(model: Any, extractor: Any, case: dict[str, Any]) -> dict[str, Any] | None:
    """What is written for a sound; None if two tokens are about as likely."""
    samples = speech_files.sound(case["seconds"], case["seed"]).astype(np.float32) / 32768
    is_long = case["seconds"] > speech_files.SECONDS
    options = {"truncation": False, "padding": "longest"} if is_long else {}
    features = extractor(samples, sampling_rate=16000, return_tensors="pt", **options)
    leads, english = Leads(), case.get("english")
    times = bool(case.get("times") or is_long)
    found = model.generate(
        features.input_features,
        language=case.get("language"),
        task=None if english else case.get("task", "transcribe"),
        return_timestamps=times,
        logits_processor=[leads],
        return_segments=times,
    )
    if leads.least < LEAD:
        return None
    if not times:
        return {"ids": found[0].tolist()}
    parts = found["segments"][0]
    return {
        "parts": [
            [round(float(part["start"]), 3), round(float(part["end"]), 3), part["tokens"].tolist()]
            for part in parts
        ]
    }


def records() -> Iterator[tuple[str, dict[str, Any]]]:
    extractor, known = WhisperFeatureExtractor(**speech_files.PROCESSOR), shapes()
    for name, case in CASES.items():
        generation = speech_files.ENGLISH if case.get("english") else speech_files.GENERATION
        with tempfile.TemporaryDirectory() as folder:
            path = speech_files.write(Path(folder, "model"), known, generation)
            model = transformers.WhisperForConditionalGeneration.from_pretrained(path).eval()
            for seed in range(case.get("seed", 0), 1000, 8):
                tried = {**case, "seed": seed}
                if (found := record(model, extractor, tried)) is not None:
                    yield name, {**tried, **found}
                    break


def spectrograms() -> Iterator[tuple[str, Any]]:
    for name, options in SPECTROGRAMS.items():
        extractor = WhisperFeatureExtractor(**options)
        samples = speech_files.sound(1.3 * extractor.chunk_length, 11, extractor.sampling_rate)
        sound = samples.astype(np.float32) / 32768
        for kind, some in (("short", sound[: len(sound) // 3]), ("long", sound)):
            whole = np.pad(some, (0, max(0, extractor.n_samples - len(some))))
            exact = extractor._np_extract_fbank_features(whole[None], "cpu")[0]
            quick = extractor._torch_extract_fbank_features(whole)
            yield f"{name}/{kind}/exact", exact[:, ::68].astype(np.float32)
            yield f"{name}/{kind}/quick", quick[:, ::68]


def main() -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    found = {"shapes": shapes(), "cases": dict(records())}
    (HERE / "speech.json").write_text(json.dumps(found) + "\n")
    options = np.frombuffer(json.dumps(SPECTROGRAMS).encode(), np.uint8)
    np.savez_compressed(HERE / "spectrograms.npz", options=options, **dict(spectrograms()))
    for name, case in found["cases"].items():
        print(name, case)


if __name__ == "__main__":
    main()
