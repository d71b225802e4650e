"""Record what transformers computes with tiny models of texts with images, in their options.

Needs the ``peers`` extra (torch, transformers). It writes ``image_text.npz`` beside this script:
the configuration, the shapes of the tensors and the ids of each case as JSON, and the logits
behind each text, of which the tokens past the last come one at a time. Weights and pixels follow
from names (``seeded.py``), and are not recorded.

    python tests/data/record_image_text.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from recorded_cases import filled, quiet, write
from seeded import pixel_values, tensors

OUT = Path(__file__).parent / "image_text.npz"
TOKEN, BEGIN, END, FIRST = 256, 257, 258, 259
COUNT = 9
TEXT = {
    "vocab_size": 262,
    "hidden_size": 24,
    "intermediate_size": 36,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "sliding_window": 14,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "max_position_embeddings": 128,
    "bos_token_id": FIRST,
    "eos_token_id": 260,
    "pad_token_id": 261,
}
VISION = {
    "hidden_size": 20,
    "intermediate_size": 28,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
    "image_size": 12,
    "patch_size": 2,
}
IDS = {"image_token_index": TOKEN, "boi_token_index": BEGIN, "eoi_token_index": END}
# Changes to the parts; the side of an image is 6 patches, or as they say.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}, {}),
    "whole": ({"layer_types": ["full_attention"] * 3}, {"hidden_act": "gelu"}, {}),
    "narrow": ({"sliding_window": 9}, {"layer_norm_eps": 0.1}, {}),
    "many": ({"num_key_value_heads": 4, "attention_bias": True}, {"num_channels": 1}, {}),
    "few": ({}, {"image_size": 13, "patch_size": 3}, {"mm_tokens_per_image": 4}),
    "headed": ({"tie_word_embeddings": False}, {}, {"tie_word_embeddings": False}),
}
OTHERS = ("gelu_python", "gelu_new", "gelu_fast", "quick_gelu", "relu", "silu", "swish")
CASES |= {name: ({}, {"hidden_act": name}, {}) for name in OTHERS}
DECODED = 3  # tokens that come one at a time


def text(count: int) -> list[int]:
    """A text of ids with two images of ``count`` tokens, the second past windows."""
    letters = np.random.default_rng(7).integers(0, 250, 40).tolist()
    image = [BEGIN, *[TOKEN] * count, END]
    return [FIRST, *letters[:5], *image, *letters[5:24], *image, *letters[24:31]]


def record(changes: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], np.ndarray]:
    """What is known of a case, and the logits behind the last tokens of its text."""
    own, vision, whole = changes
    config = transformers.Gemma3Config(
        text_config={**TEXT, **own},
        vision_config={**VISION, **vision, "vision_use_head": False},
        **{"mm_tokens_per_image": COUNT, **IDS, **whole},
    )
    maker = transformers.Gemma3ForConditionalGeneration
    model, saved, shapes = filled(maker(config), tensors)
    ids = torch.tensor([text(saved["mm_tokens_per_image"])])
    types, pixels = (ids == TOKEN).long(), torch.from_numpy(pixel_values(saved["vision_config"]))
    with torch.no_grad():
        found = model(input_ids=ids, pixel_values=pixels, token_type_ids=types)
    logits = found.logits[0, -1 - DECODED :].numpy()
    return {"config": saved, "shapes": shapes, "ids": ids[0].tolist()}, logits


def main() -> None:
    quiet()
    known, arrays = {}, {}
    for name, changes in CASES.items():
        known[name], arrays[f"{name}/logits"] = record(changes)
    texts = {"cases": known, "without": {}}
    write(OUT, texts, arrays)


if __name__ == "__main__":
    main()
