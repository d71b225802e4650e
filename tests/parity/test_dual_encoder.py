"""Graphs of both towers in float64 beside what transformers recorded, in all their options.

``tests/data/record_dual_encoder.py`` recorded it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from maxtool.errors import ModelMismatch
from maxtool.weights.checkpoint import open_checkpoint
from tests.artifact.measure import error
from tests.data.seeded import pixel_values, tensors, text_ids
from tests.parity.traced import TracedModel

FILE = Path(__file__).resolve().parents[1] / "data" / "dual_encoder.npz"
RECORDED = dict(np.load(FILE))
CASES: dict[str, Any] = json.loads(RECORDED.pop("cases").tobytes())
TOWERS = ("text_config", "vision_config")


def written(case: str, folder: Path, **changes: Any) -> Path:
    """The checkpoint of a case, with changes by key; TOWER__KEY is that of a tower."""
    known = CASES[case]
    config = json.loads(json.dumps(known["config"]))
    for name, value in changes.items():
        tower, _, key = name.partition("__")
        (config[tower] if tower in TOWERS else config)[key or tower] = value
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors(known["shapes"], 1.0), folder / "model.safetensors")
    return folder


def inputs_of(case: str) -> dict[str, dict[str, Any]]:
    """The inputs of each entry that was recorded."""
    config, size = CASES[case]["config"], CASES[case]["size"]
    pixels = {"pixel_values": pixel_values(config, size)}
    texts = dict(zip(("input_ids", "attention_mask"), text_ids(config), strict=True))
    return {"forward": {**pixels, **texts}, "embed": texts, "embed_image": pixels}


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_recorded_outputs(case: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(written(case, tmp_path))
    model = TracedModel(checkpoint, input_size=CASES[case]["size"])
    for entry, inputs in inputs_of(case).items():
        for output, found in model.run(entry, inputs).items():
            expected = RECORDED[f"{case}/{entry}.{output}"]
            assert found.shape == expected.shape
            assert error(found, expected) < 3e-6, (entry, output)


@pytest.mark.parametrize("case", ["CLIP-0", "Siglip-0"])
def test_logits_are_those_of_vectors(case: str, tmp_path: Path) -> None:
    model, inputs = TracedModel(open_checkpoint(written(case, tmp_path))), inputs_of(case)
    images, texts = (model.run(f"embed{end}", inputs[f"embed{end}"]) for end in ("_image", ""))
    vectors = {"image_embeds": images["embeddings"], "text_embeds": texts["embeddings"]}
    expected = RECORDED[f"{case}/forward.logits_per_image"]
    assert error(model.run("score", vectors)["logits_per_image"], expected) < 3e-6


def test_the_end_of_a_text_that_has_none(tmp_path: Path) -> None:
    """The vector is that of the first token then, as transformers finds none."""
    model, inputs = TracedModel(open_checkpoint(written("CLIP-0", tmp_path))), inputs_of("CLIP-0")
    ids = np.where(inputs["embed"]["input_ids"] == 29, 4, inputs["embed"]["input_ids"])
    ones = np.ones_like(ids)
    whole = model.run("embed", {"input_ids": ids, "attention_mask": ones})["embeddings"]
    alone = model.run("embed", {"input_ids": ids[:, :1], "attention_mask": ones[:, :1]})
    assert error(whole, alone["embeddings"]) < 1e-12


@pytest.mark.parametrize(
    ("case", "changes", "problem"),
    [
        ("CLIP-0", {"projection_dim": 5}, "projection.weight"),
        ("CLIP-0", {"text_config__hidden_act": "prelu"}, "text_config.hidden_act: 'prelu'"),
        ("CLIP-0", {"vision_config__hidden_act": "prelu"}, "vision_config.hidden_act: 'prelu'"),
        ("CLIP-0", {"text_config__eos_token_id": [29]}, "eos_token_id"),
        ("CLIP-0", {"text_config__eos_token_id": -1}, "eos_token_id = -1 is not"),
        ("CLIP-0", {"text_config__num_attention_heads": 5}, "not a multiple of text_heads 5"),
        ("CLIP-0", {"text_config__rope_theta": 1e4}, "text_config.rope_theta = 10000.0 is unknown"),
        ("Siglip-0", {"vision_config__vision_use_head": False}, "vision_use_head = False"),
        ("Siglip-0", {"text_config__projection_size": 19}, "have 20 elements, of texts 19"),
        ("Siglip-0", {"text_config__num_hidden_layers": 10**6}, "text_layers is 1000000, above"),
    ],
)
def test_what_is_refused(case: str, changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(ModelMismatch) as error:
        TracedModel(open_checkpoint(written(case, tmp_path, **changes)))
    assert problem in str(error.value)
