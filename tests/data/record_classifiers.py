"""Record what transformers computes with tiny encoders that tell classes of texts apart.

Needs the ``peers`` extra (torch, transformers). It writes ``classifiers.npz`` beside this script:
the configuration and the shapes of the tensors of each case as JSON, and what comes out; also what
each class takes for keys that a configuration lacks. Weights and tokens follow from names
(``seeded.py``), and are not recorded.

    python tests/data/record_classifiers.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from recorded_cases import filled, quiet, write
from seeded import classified_inputs, tensors

OUT = Path(__file__).parent / "classifiers.npz"
SIZES = {
    "vocab_size": 61,
    "hidden_size": 20,
    "intermediate_size": 28,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
    "max_position_embeddings": 32,
    "pad_token_id": 1,
}
DISTIL = {
    "vocab_size": 61,
    "dim": 20,
    "hidden_dim": 28,
    "n_layers": 2,
    "n_heads": 5,
    "max_position_embeddings": 32,
    "pad_token_id": 1,
}
BESIDES: dict[str, dict[str, Any]] = {
    "ModernBert": {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3},
    "Roberta": {"type_vocab_size": 1},
    "DebertaV2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
    | {"type_vocab_size": 2},
    "XLMRoberta": {"type_vocab_size": 1},
    "Gte": {"type_vocab_size": 2},
}
NAMED = {"id2label": {"0": "bad", "1": "fair", "2": "good"}}
MODERN = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu")
# The options of every class.
SHARED: tuple[dict[str, Any], ...] = (
    NAMED,
    {"num_labels": 1},
    {"num_labels": 4, "problem_type": "multi_label_classification"},
    {"num_labels": 2, "problem_type": "regression"},
    {"num_labels": 3, "problem_type": "single_label_classification"},
)
# Those of one class.
OWN: dict[str, tuple[dict[str, Any], ...]] = {
    "ModernBert": (
        *({"classifier_activation": name, "num_labels": 3} for name in MODERN),
        {"classifier_pooling": "mean", "num_labels": 3},
        {"classifier_bias": True, "num_labels": 3},
        {"classifier_bias": True, "norm_bias": True, "num_labels": 3},
    ),
    "Electra": ({"embedding_size": 12, "num_labels": 3},),
    "DebertaV2": tuple({"pooler_hidden_act": name, "num_labels": 3} for name in (*MODERN, "tanh")),
}
# Keys that a head alone has.
HEAD_KEYS = ("classifier_activation", "classifier_bias", "classifier_pooling")
HEAD_KEYS += ("pooler_hidden_act", "problem_type")
CLASSES = (
    "Bert",
    "Roberta",
    "XLMRoberta",
    "DistilBert",
    "Electra",
    "ModernBert",
    "MPNet",
    "Gte",
    "DebertaV2",
)


def cases() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """A name, a class, and its configuration."""
    for base in CLASSES:
        sizes = DISTIL if base == "DistilBert" else SIZES
        sizes = sizes | BESIDES.get(base, {})
        for number, changes in enumerate((*SHARED, *OWN.get(base, ()))):
            yield f"{base}-{number}", f"{base}ForSequenceClassification", {**sizes, **changes}


def without(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration, and what its class takes for those keys that a head alone has."""
    maker = type(transformers.AutoConfig.for_model(config["model_type"]))
    taken = {}
    for key in HEAD_KEYS:
        made = maker(**{other: value for other, value in config.items() if other != key})
        whole = json.loads(made.to_json_string(use_diff=False))
        taken |= {key: whole[key]} if key in whole else {}
    return {"config": config, "taken": taken}


def record(kind: str, config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is known of a case, and its outputs by name."""
    maker = getattr(transformers, kind)
    model, saved, shapes = filled(maker(maker.config_class(**config)), tensors)
    given = classified_inputs(saved["model_type"])
    with torch.no_grad():
        found = model(**{name: torch.from_numpy(array) for name, array in given.items()})
    known = {"config": saved, "shapes": shapes}
    return known, {"classify.logits": found.logits.numpy()}


def main() -> None:
    quiet()
    arrays: dict[str, Any] = {}
    known: dict[str, Any] = {}
    for name, kind, config in cases():
        known[name], found = record(kind, config)
        arrays |= {f"{name}/{output}": array for output, array in found.items()}
    firsts = [f"{base}-0" for base in CLASSES]
    texts = {"cases": known, "without": {name: without(known[name]["config"]) for name in firsts}}
    write(OUT, texts, arrays)


if __name__ == "__main__":
    main()
