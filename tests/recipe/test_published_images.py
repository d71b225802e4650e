"""Configurations of models of images as they are published, with keys that change nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from maxtool.artifact import image_processor
from maxtool.recipe import find_recipe, resolve_config
from maxtool.weights import open_checkpoint

STAGES = ["stem", "stage1", "stage2", "stage3", "stage4"]
LABELS = {
    "id2label": {"0": "tench, Tinca tinca", "1": "goldfish, Carassius auratus"},
    "label2id": {"goldfish, Carassius auratus": 1, "tench, Tinca tinca": 0},
}
NEXT = {
    "architectures": ["ConvNextForImageClassification"],
    "drop_path_rate": 0.0,
    "hidden_act": "gelu",
    "image_size": 224,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "layer_scale_init_value": 1e-06,
    "model_type": "convnext",
    "num_channels": 3,
    "num_stages": 4,
    "patch_size": 4,
    "torch_dtype": "float32",
}
# Name to the configuration, the recipe, and some fields.
PUBLISHED: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "resnet-50": (
        LABELS
        | {
            "architectures": ["ResNetForImageClassification"],
            "depths": [3, 4, 6, 3],
            "downsample_in_first_stage": False,
            "embedding_size": 64,
            "hidden_act": "relu",
            "hidden_sizes": [256, 512, 1024, 2048],
            "layer_type": "bottleneck",
            "model_type": "resnet",
            "num_channels": 3,
            "torch_dtype": "float32",
            "transformers_version": "4.18.0.dev0",
        },
        "resnet",
        {"n_layers": 16, "downsample_in_bottleneck": False, "layer_type": "bottleneck"},
    ),
    "resnet-50, fine-tuned": (
        LABELS
        | {
            "_name_or_path": "microsoft/resnet-50",
            "architectures": ["ResNetForImageClassification"],
            "depths": [3, 4, 6, 3],
            "downsample_in_bottleneck": False,
            "downsample_in_first_stage": False,
            "embedding_size": 64,
            "hidden_act": "relu",
            "hidden_sizes": [256, 512, 1024, 2048],
            "layer_type": "bottleneck",
            "max_length": 128,
            "model_type": "resnet",
            "num_channels": 3,
            "out_features": ["stage4"],
            "out_indices": [4],
            "problem_type": "single_label_classification",
            "stage_names": STAGES,
            "torch_dtype": "float32",
            "transformers_version": "4.31.0",
        },
        "resnet",
        {"n_layers": 16, "hidden_sizes": (256, 512, 1024, 2048)},
    ),
    "convnext-tiny-224": (
        LABELS
        | NEXT
        | {
            "depths": [3, 3, 9, 3],
            "hidden_sizes": [96, 192, 384, 768],
            "out_features": ["stage4"],
            "out_indices": [4],
            "stage_names": STAGES,
            "transformers_version": "4.31.0",
        },
        "convnext",
        {"n_layers": 18, "layer_scale": True, "image_size": 224, "norm_eps": 1e-12},
    ),
    "convnext-base-224": (
        {key: value for key, value in NEXT.items() if key != "image_size"}
        | {
            "depths": [3, 3, 27, 3],
            "hidden_sizes": [128, 256, 512, 1024],
            "transformers_version": "4.18.0",
        },
        "convnext",
        {"n_layers": 36, "image_size": 224, "hidden_sizes": (128, 256, 512, 1024)},
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations_pass(name: str, tmp_path: Path) -> None:
    config, recipe, fields = PUBLISHED[name]
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    checkpoint = open_checkpoint(tmp_path)
    found = find_recipe(checkpoint)
    assert found.name == recipe
    resolved = resolve_config(found, checkpoint)
    assert resolved.notes == []
    assert {key: resolved.values[key] for key in fields} == fields


def test_the_preprocessing_of_resnet_50(tmp_path: Path) -> None:
    """Keys of the first release of the class."""
    said = {
        "crop_pct": 0.875,
        "do_normalize": True,
        "do_resize": True,
        "feature_extractor_type": "ConvNextFeatureExtractor",
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
        "resample": 3,
        "size": 224,
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(said))
    steps = image_processor.read(tmp_path)
    assert steps is not None
    assert (steps.shortest_edge, steps.crop, steps.resample) == (256, (224, 224), "bicubic")
