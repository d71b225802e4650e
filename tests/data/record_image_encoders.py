"""Record what transformers computes with tiny encoders of images, in all their options.

Needs the ``peers`` extra (torch, transformers). It writes ``image_encoders.npz`` beside this
script: the configuration and the shapes of the tensors of each case as JSON, and what comes out;
also what each class takes for keys that a configuration lacks. Weights and pixels follow from
names (``seeded.py``), and are not recorded.

    python tests/data/record_image_encoders.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from recorded_cases import filled, quiet, write
from seeded import pixel_values, tensors
from transformers import PreTrainedModel

OUT = Path(__file__).parent / "image_encoders.npz"
SIZES = {
    "hidden_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
    "image_size": 12,
    "patch_size": 4,
}
INNER = {**SIZES, "intermediate_size": 28}
ACTIVATIONS = (
    *("gelu", "gelu_python", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"),
    *("quick_gelu", "relu", "silu", "swish"),
)
POOLED = ("gelu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu", "relu", "silu")
LABELS = {"num_labels": 3}
TEXT = {
    "vocab_size": 30,
    "hidden_size": 12,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "max_position_embeddings": 8,
}
# The options of every class, besides sizes.
SHARED: tuple[dict[str, Any], ...] = (
    {},
    *({"hidden_act": name} for name in ACTIVATIONS),
    {"layer_norm_eps": 0.1},
    {"num_channels": 1},
    {"image_size": 14},
)
VIT: tuple[dict[str, Any], ...] = (
    {"qkv_bias": False},
    {"pooler_output_size": 7},
    *({"pooler_act": name} for name in POOLED),
)
DINO: tuple[dict[str, Any], ...] = (
    {"qkv_bias": False},
    {"mlp_ratio": 2},
    {"use_swiglu_ffn": True},
    *({"use_swiglu_ffn": True, "mlp_ratio": 3, "hidden_act": name} for name in ACTIVATIONS),
)


WHOLE = ("ViT-0", "Dinov2-0", "Dinov2-15", "Dinov2WithRegisters-0", "Siglip-0", "CLIP-0")
# Heads that divide the width, and patches that fit, whichever of them is left out.
WIDE = {"hidden_size": 48, "num_attention_heads": 4, "image_size": 96}


def without(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration, and what its class takes for each key where only that is left out."""
    maker = type(transformers.AutoConfig.for_model(config["model_type"]))
    config = config | WIDE
    taken = {}
    for key in config.keys() - {"model_type", "transformers_version"}:
        made = maker(**{other: value for other, value in config.items() if other != key})
        taken[key] = json.loads(made.to_json_string(use_diff=False)).get(key)
    return {"config": config, "taken": dict(sorted(taken.items()))}


def towers(**changes: Any) -> dict[str, Any]:
    """The configuration of a model of images and texts, with changes to its encoder of images."""
    return {"vision_config": {**INNER, **changes}, "text_config": TEXT}


def cases() -> Iterator[tuple[str, str, dict[str, Any], int | None]]:
    """A name, a class, its configuration, and the size of the images where it is another one."""
    for base, options in (("ViT", VIT), ("Dinov2", DINO), ("Dinov2WithRegisters", DINO)):
        sizes = INNER if base == "ViT" else SIZES
        for number, changes in enumerate((*SHARED, *options)):
            yield f"{base}-{number}", f"{base}Model", {**sizes, **changes}, None
        for size in (8, 17, 24):
            yield f"{base}-to-{size}", f"{base}Model", sizes, size
        yield f"{base}-classifier", f"{base}ForImageClassification", {**sizes, **LABELS}, None
    yield "ViT-masked", "ViTForMaskedImageModeling", {**INNER, "encoder_stride": 4}, None
    yield "registers-2", "Dinov2WithRegistersModel", {**SIZES, "num_register_tokens": 2}, None
    for base in ("Siglip", "CLIP"):
        for number, changes in enumerate(SHARED):
            yield f"{base}-{number}", f"{base}VisionModel", {**INNER, **changes}, None
        for size in (8, 24):
            yield f"{base}-to-{size}", f"{base}VisionModel", INNER, size
        labelled = f"{base}ForImageClassification"
        yield f"{base}-classifier", labelled, {**towers(), **LABELS}, None
    yield "Siglip-headless", "SiglipVisionModel", {**INNER, "vision_use_head": False}, None
    yield "Siglip-towers", "SiglipModel", towers(hidden_act="gelu"), None
    yield "CLIP-towers", "CLIPModel", {**towers(), "projection_dim": 7}, None
    projected = {**INNER, "projection_dim": 9}
    yield "CLIP-projected", "CLIPVisionModelWithProjection", projected, None


def record(kind: str, config: dict[str, Any], size: int | None) -> tuple[dict[str, Any], Any]:
    """What is known of a case, and its outputs by name."""
    maker = getattr(transformers, kind)
    model, saved, shapes = filled(maker(maker.config_class(**config)), tensors)
    known = {"config": saved, "shapes": shapes, "size": size}
    return known, outputs(model, known)


def outputs(model: PreTrainedModel, known: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs by the names of our entries and theirs."""
    pixels = torch.from_numpy(pixel_values(known["config"], known["size"]))
    other = known["size"] is not None and "dinov2" not in known["config"]["model_type"]
    options = {"interpolate_pos_encoding": True} if other else {}
    with torch.no_grad():
        if hasattr(model, "get_image_features"):
            found = model.get_image_features(pixels)
            return {"embed.embeddings": found.pooler_output.numpy()}
        found = model(pixels, **options)
        if type(model).__name__ == "ViTForMaskedImageModeling":
            found = model.vit(pixels)
    names = {
        "last_hidden_state": "forward.last_hidden_state",
        "pooler_output": "forward.pooler_output",
        "image_embeds": "embed.embeddings",
        "logits": "classify.logits",
    }
    some = {ours: found.get(theirs) for theirs, ours in names.items()}
    return {name: array.numpy() for name, array in some.items() if array is not None}


def main() -> None:
    quiet()
    arrays: dict[str, Any] = {}
    known: dict[str, Any] = {}
    for name, kind, config, size in cases():
        known[name], found = record(kind, config, size)
        arrays |= {f"{name}/{output}": array for output, array in found.items()}
    texts = {"cases": known, "without": {name: without(known[name]["config"]) for name in WHOLE}}
    write(OUT, texts, arrays)


if __name__ == "__main__":
    main()
