"""Record what transformers computes with tiny convolutional networks, in all their options.

Needs the ``peers`` extra (torch, transformers). It writes ``convnets.npz`` beside this script: the
configuration and the shapes of the tensors of each case as JSON, and what comes out; also what
each class takes for keys that a configuration lacks. Weights and pixels follow from names
(``seeded.py``), and are not recorded.

    python tests/data/record_convnets.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import torch
import transformers
from record_image_encoders import ACTIVATIONS, LABELS
from recorded_cases import filled, quiet, write
from seeded import Config, network_tensors, pixel_values

OUT = Path(__file__).parent / "convnets.npz"
SIDE = 21
"""Pixels of a side, odd so that windows do not fit."""
RESIDUAL: Config = {"embedding_size": 6, "hidden_sizes": [8, 12], "depths": [2, 1]}
FLAGS = ("downsample_in_first_stage", "downsample_in_bottleneck")
NEXT: Config = {"hidden_sizes": [8, 12], "depths": [2, 1], "num_stages": 2}
# The options of every class, besides sizes.
SHARED: tuple[Config, ...] = (
    {},
    *({"hidden_act": name} for name in ACTIVATIONS),
    {"num_channels": 1},
)
RESIDUAL_OPTIONS: tuple[Config, ...] = (
    *(
        {"layer_type": kind, **dict(zip(FLAGS, flags, strict=True))}
        for kind in ("basic", "bottleneck")
        for flags in product((False, True), repeat=2)
    ),
    {"embedding_size": 8},
    {"layer_type": "basic", "embedding_size": 8},
    {"hidden_sizes": [9, 14]},
    {"hidden_sizes": [8, 8, 12], "depths": [1, 2, 1]},
    {"hidden_sizes": [5], "depths": [3], "layer_type": "basic"},
)
NEXT_OPTIONS: tuple[Config, ...] = (
    {"layer_norm_eps": 0.1},
    {"patch_size": 3},
    {"hidden_sizes": [5], "depths": [3], "num_stages": 1},
    {"hidden_sizes": [8, 8, 12], "depths": [1, 2, 1], "num_stages": 3},
)
WHOLE = ("ResNet-0", "ConvNext-0", "ConvNextV2-0")


def without(config: Config) -> Config:
    """A configuration, and what its class takes for each key where only that is left out."""
    maker = type(transformers.AutoConfig.for_model(config["model_type"]))
    taken = {}
    for key in config.keys() - {"model_type", "transformers_version"}:
        made = maker(**{other: value for other, value in config.items() if other != key})
        taken[key] = json.loads(made.to_json_string(use_diff=False)).get(key)
    return {"config": config, "taken": dict(sorted(taken.items()))}


def cases() -> Iterator[tuple[str, str, Config, int]]:
    """A name, a class, its configuration, and the pixels of a side of the images."""
    rows = (
        ("ResNet", RESIDUAL, RESIDUAL_OPTIONS, (1, 8, 32)),
        ("ConvNext", NEXT, (*NEXT_OPTIONS, {"layer_scale_init_value": 0.0}), (8, 32, 43)),
        ("ConvNextV2", NEXT, NEXT_OPTIONS, (8, 43)),
    )
    for base, sizes, options, sides in rows:
        for number, changes in enumerate((*SHARED, *options)):
            yield f"{base}-{number}", f"{base}Model", {**sizes, **changes}, SIDE
        for side in sides:
            yield f"{base}-of-{side}", f"{base}Model", sizes, side
        yield f"{base}-classifier", f"{base}ForImageClassification", {**sizes, **LABELS}, SIDE
    yield "ResNet-backbone", "ResNetBackbone", RESIDUAL, SIDE


def record(kind: str, config: Config, size: int) -> tuple[Config, Config]:
    """What is known of a case, and its outputs by the names of our entries and theirs."""
    maker = getattr(transformers, kind)
    model, saved, shapes = filled(maker(maker.config_class(**config)), network_tensors)
    known = {"config": saved, "shapes": shapes, "size": size}
    with torch.no_grad():
        found = model(torch.from_numpy(pixel_values(saved, size)))
    if "feature_maps" in found:
        return known, {"forward.last_hidden_state": found["feature_maps"][-1].numpy()}
    names = {
        "last_hidden_state": "forward.last_hidden_state",
        "pooler_output": "forward.pooler_output",
        "logits": "classify.logits",
    }
    some = {ours: found[theirs].numpy() for theirs, ours in names.items() if theirs in found}
    if (pooled := some.get("forward.pooler_output")) is not None:
        some["forward.pooler_output"] = pooled.reshape(len(pooled), -1)
    return known, some


def main() -> None:
    quiet()
    arrays: Config = {}
    known: Config = {}
    for name, kind, config, size in cases():
        known[name], found = record(kind, config, size)
        arrays |= {f"{name}/{output}": array for output, array in found.items()}
    texts = {"cases": known, "without": {name: without(known[name]["config"]) for name in WHOLE}}
    write(OUT, texts, arrays)


if __name__ == "__main__":
    main()
