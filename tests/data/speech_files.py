"""A tiny model of speech in the files of a published one, and sounds for it.

Shared by ``record_speech.py``, which needs torch, and the tests of what it recorded, which do not.
Weights, tokens and sounds are computed from whole numbers, so that they are the same everywhere.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

if __package__:
    from tests.data.seeded import Array, tensors
else:
    from seeded import Array, tensors

RATE, SECONDS = 16_000, 1
LANGUAGES = ("en", "de", "fr")
WORDS = ("th", "er", "he", "an", "in", " t", " a", " the", "ing", " s")
END = 256 + len(WORDS)
SPECIAL = (
    *("<|endoftext|>", "<|startoftranscript|>", *(f"<|{code}|>" for code in LANGUAGES)),
    *("<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>"),
    "<|notimestamps|>",
)
TOKENS = {name: END + number for number, name in enumerate(SPECIAL)}
FIRST_TIME = END + len(SPECIAL)
STEPS = 50  # of a fiftieth of a second
SIZE = FIRST_TIME + STEPS + 1
CONFIG: dict[str, Any] = {
    "model_type": "whisper",
    "architectures": ["WhisperForConditionalGeneration"],
    "vocab_size": SIZE,
    "d_model": 32,
    "num_mel_bins": 12,
    "max_source_positions": STEPS,
    "max_target_positions": 30,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 48,
    "pad_token_id": END,
    "bos_token_id": END,
    "eos_token_id": END,
    "decoder_start_token_id": TOKENS["<|startoftranscript|>"],
}
PROCESSOR = {
    "feature_extractor_type": "WhisperFeatureExtractor",
    "feature_size": CONFIG["num_mel_bins"],
    "chunk_length": SECONDS,
    "processor_class": "WhisperProcessor",
}
GENERATION: dict[str, Any] = {
    "decoder_start_token_id": TOKENS["<|startoftranscript|>"],
    "eos_token_id": END,
    "pad_token_id": END,
    "bos_token_id": END,
    "is_multilingual": True,
    "lang_to_id": {f"<|{code}|>": TOKENS[f"<|{code}|>"] for code in LANGUAGES},
    "task_to_id": {name: TOKENS[f"<|{name}|>"] for name in ("transcribe", "translate")},
    "no_timestamps_token_id": TOKENS["<|notimestamps|>"],
    # Bytes of no ASCII character, and tokens that are no text.
    "suppress_tokens": [*range(33), *range(127, 256), *range(END + 1, TOKENS["<|nospeech|>"] + 1)],
    "begin_suppress_tokens": [32, END],
    "max_initial_timestamp_index": 10,
    "max_length": CONFIG["max_target_positions"],
}
ENGLISH = {key: each for key, each in GENERATION.items() if not key.endswith("_to_id")}
ENGLISH["is_multilingual"] = False
ENGLISH["forced_decoder_ids"] = [[1, TOKENS["<|notimestamps|>"]]]


def write(
    folder: Path,
    shapes: Mapping[str, list[int]],
    generation: Mapping[str, Any] = GENERATION,
    **changes: Any,
) -> Path:
    """A checkpoint of the model, with changes to its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"config": CONFIG | changes, "preprocessor_config": PROCESSOR}
    files |= {"generation_config": generation, "tokenizer": tokenizer()}
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    save_file(tensors(shapes, 1.0), folder / "model.safetensors", {"format": "pt"})
    return folder


def tokenizer() -> dict[str, Any]:
    """A byte-level BPE whose bytes come in their order, then some words."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    chars = {byte: chr(byte) for byte in printable}
    chars |= {byte: chr(256 + place) for place, byte in enumerate(others)}
    words = ["".join(chars[byte] for byte in word.encode()) for word in WORDS]
    pieces = [*(chars[byte] for byte in range(256)), *words]
    known = {piece: number for number, piece in enumerate(pieces)}
    merges = [
        next([word[:at], word[at:]] for at in range(len(word) - 1, 0, -1) if word[:at] in known)
        for word in words
    ]
    times = [f"<|{step / 50:.2f}|>" for step in range(STEPS + 1)]
    added = [
        {
            "id": END + number,
            "content": content,
            "special": number < len(SPECIAL),
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
        }
        for number, content in enumerate([*SPECIAL, *times])
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {**byte_level, "use_regex": True},
        "post_processor": None,
        "decoder": {**byte_level, "use_regex": True},
        "model": {"type": "BPE", "vocab": known, "merges": merges},
    }


def sound(seconds: float, seed: int = 0, rate: int = RATE) -> Array:
    """Noise of changing colour and loudness, int16."""
    count = int(seconds * rate)
    bits = np.random.PCG64([seed, 7]).random_raw(count + 64)
    noise = (bits >> np.uint64(52)).astype(np.int64) - 2048
    total, place = np.cumsum(noise), np.arange(count)
    width = 1 + (place * 50 // rate * 37 + seed) % 23
    loud = 1 + (place * 20 // rate * 11 + seed) % 7
    return ((total[place + width] - total[place]) * loud // 8).clip(-32768, 32767).astype("<i2")


def wav(samples: Array, rate: int = RATE, *, kind: int = 1, channels: int = 1) -> bytes:
    """A WAV file of samples, channel by channel within each frame."""
    raw, size = samples.tobytes(), samples.itemsize
    head = (kind, channels, rate, rate * channels * size, channels * size, size * 8)
    parts = b"fmt " + struct.pack("<IHHIIHH", 16, *head) + b"data" + struct.pack("<I", len(raw))
    return b"RIFF" + struct.pack("<I", len(parts) + len(raw) + 4) + b"WAVE" + parts + raw
