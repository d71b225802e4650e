"""Qwen 3.5 as it is published with images: the language model inside, its experts fused or not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from maxtool.recipe import find_recipe, plan
from maxtool.weights import Checkpoint, open_checkpoint
from tests.data.seeded import Array, sample, tensors
from tests.parity.traced import TracedModel
from tests.variants.rows import ALLOWED, Row, error, inputs, rows

BESIDE = {
    "vision_config": {"depth": 1},
    **dict.fromkeys(("image_token_id", "video_token_id"), 1),
    **dict.fromkeys(("vision_start_token_id", "vision_end_token_id"), 2),
}
FURTHER = ("model.visual.blocks.0.norm1.weight", "mtp.fc.weight", "mtp.layers.0.mlp.x.weight")


def published(row: Row, folder: Path, *, is_fused: bool = False) -> Checkpoint:
    """A recorded model of texts in the files of one that sees images, too."""
    held = tensors(row.shapes, row.norm)
    held = fused(held, row.config) if is_fused else held
    named = {
        name.replace("model.", "model.language_model.", 1): array for name, array in held.items()
    }
    save_file(named | {name: np.ones(2, "f4") for name in FURTHER}, folder / "model.safetensors")
    kind = row.config["model_type"].removesuffix("_text")
    outside = {"tie_word_embeddings": row.config["tie_word_embeddings"]}
    text = {key: value for key, value in row.config.items() if key not in outside}
    whole = {"model_type": kind, "text_config": text, **BESIDE, **outside}
    (folder / "config.json").write_text(json.dumps(whole))
    return open_checkpoint(folder)


def fused(held: dict[str, Array], config: dict[str, int]) -> dict[str, Array]:
    """The experts of each layer in two tensors."""
    result = {name: array for name, array in held.items() if ".experts." not in name}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}.mlp.experts."
        gate, up, down = (
            np.stack([held[f"{at}{i}.{name}_proj.weight"] for i in range(config["num_experts"])])
            for name in ("gate", "up", "down")
        )
        result[f"{at}gate_up_proj"] = np.concatenate([gate, up], axis=1)
        result[f"{at}down_proj"] = down
    return result


@pytest.mark.parametrize(
    ("family", "recipe"),
    [
        ("qwen3_5_text", "qwen3_5_vision"),
        ("qwen3_5_moe_text", "qwen3_5_moe_vision"),
        ("qwen3_5_moe_text", "qwen3_5_moe_fused"),
    ],
)
def test_the_language_model_inside(family: str, recipe: str, tmp_path: Path) -> None:
    row = next(row for row in rows(family) if "gguf" not in row.more)
    checkpoint = published(row, tmp_path, is_fused=recipe.endswith("fused"))
    found = find_recipe(checkpoint)
    assert found.name == recipe
    planned = plan(found, checkpoint)
    assert any("sees images" in note for note in planned.notes)
    assert row.expected is not None
    logits = TracedModel(checkpoint).forward(inputs(row)["input_ids"])
    assert error(sample(logits), row.expected) < ALLOWED
