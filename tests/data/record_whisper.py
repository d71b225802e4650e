"""Record what transformers computes with tiny Whisper models, in all their options.

Needs the ``peers`` extra (torch, transformers). It writes ``whisper.npz`` beside this script: the
configuration and the shapes of the tensors of each case as JSON, the encoder's output, and the
logits after a prompt and after each of the tokens that follow it; also what the class takes for
keys that a configuration lacks. Weights and features follow from names (``seeded.py``), and are not
recorded.

    python tests/data/record_whisper.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from record_image_encoders import ACTIVATIONS
from recorded_cases import filled, quiet, write
from seeded import input_features, input_ids, tensors

OUT = Path(__file__).parent / "whisper.npz"
SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "d_model": 20,
    "num_mel_bins": 6,
    "max_source_positions": 9,
    "max_target_positions": 16,
    "encoder_layers": 2,
    "encoder_attention_heads": 5,
    "encoder_ffn_dim": 28,
    "decoder_layers": 3,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 36,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    *({"activation_function": name} for name in ACTIVATIONS),
    {"tie_word_embeddings": False},
    {"scale_embedding": True},
    {"encoder_layers": 1, "decoder_layers": 1},
    {"encoder_attention_heads": 2, "decoder_attention_heads": 10},
)
PROMPT, TOKENS = 5, 9
# Published configurations say twice how many layers the encoder has.
PUBLISHED = "whisper-published"
# Sizes that fit each other whichever of them is left out.
WIDE = {"d_model": 24, "encoder_attention_heads": 4, "decoder_attention_heads": 2}


def without(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration, and what its class takes for each key where only that is left out."""
    config = config | WIDE
    config.pop("num_hidden_layers", None)
    taken = {}
    for key in config.keys() - {"model_type", "transformers_version"}:
        made = transformers.WhisperConfig(**{k: v for k, v in config.items() if k != key})
        taken[key] = json.loads(made.to_json_string(use_diff=False)).get(key)
    return {"config": config, "taken": dict(sorted(taken.items()))}


def cases() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """A name, a class and its configuration."""
    for number, changes in enumerate(OPTIONS):
        yield f"whisper-{number}", "WhisperForConditionalGeneration", {**SIZES, **changes}
    yield "whisper-bare", "WhisperModel", SIZES
    yield PUBLISHED, "WhisperForConditionalGeneration", SIZES


def record(case: str, kind: str, config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is known of a case, and its outputs by name."""
    maker = getattr(transformers, kind)
    built = maker(transformers.WhisperConfig(**config))
    model, saved, shapes = filled(built, tensors, transformers.WhisperForConditionalGeneration)
    if case == PUBLISHED:
        saved["num_hidden_layers"] = saved["encoder_layers"]
    return {"config": saved, "shapes": shapes}, outputs(model, saved)


def outputs(model: Any, config: dict[str, Any]) -> dict[str, Any]:
    """The encoder's output, and logits by prefill and steps."""
    features = torch.from_numpy(input_features(config))
    ids = torch.from_numpy(input_ids(TOKENS)).repeat(len(features), 1)
    with torch.no_grad():
        encoded = model.model.encoder(features)
        cache, logits = None, []
        for start, stop in [(0, PROMPT), *((at, at + 1) for at in range(PROMPT, TOKENS))]:
            found = model(
                encoder_outputs=encoded,
                decoder_input_ids=ids[:, start:stop],
                past_key_values=cache,
                use_cache=True,
            )
            cache = found.past_key_values
            logits.append(found.logits[:, -1].numpy())
    return {"encoded": encoded.last_hidden_state.numpy(), "logits": np.stack(logits, 1)}


def main() -> None:
    quiet()
    arrays: dict[str, Any] = {}
    known: dict[str, Any] = {}
    for name, kind, config in cases():
        known[name], found = record(name, kind, config)
        arrays |= {f"{name}/{output}": array for output, array in found.items()}
    texts = {"cases": known, "without": {"whisper-0": without(known["whisper-0"]["config"])}}
    write(OUT, texts, arrays)


if __name__ == "__main__":
    main()
