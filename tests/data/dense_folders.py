"""Folders of sentence-transformers' models with layers behind the pooling, one for each case.

Models are the first of the recorded random configurations of a family; weights follow from their
names (``seeded.py``).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import save_file

from tests.data.seeded import Array, Config, tensor, tensors, unfolded

HERE = Path(__file__).parent
RECORDED = HERE / "dense.json"
LINEAR, ACTIVATION = "torch.nn.modules.linear.", "torch.nn.modules.activation."
IDENTITY, TANH = f"{LINEAR}Identity", f"{ACTIVATION}Tanh"
KINDS = "sentence_transformers.models."
FLAGS = {
    "mean": "pooling_mode_mean_tokens",
    "cls": "pooling_mode_cls_token",
    "last": "pooling_mode_lasttoken",
}


class Layer(NamedTuple):
    """One layer; a width of 0 is that of the model."""

    width: int
    bias: bool
    activation: str


class Case(NamedTuple):
    """One model.

    Attributes:
        family: That of the recorded configuration.
        pooling: How tokens become one vector.
        layers: What follows.
        normalize: Whether the vector is scaled to length 1 behind them.
    """

    family: str
    pooling: str
    layers: tuple[Layer, ...]
    normalize: bool = True


PLAIN = (Layer(40, bias=False, activation=IDENTITY), Layer(0, bias=False, activation=IDENTITY))
EVERY = tuple(
    Layer(5 + index, bias=index % 2 == 0, activation=f"{ACTIVATION}{name}")
    for index, name in enumerate(("ReLU", "GELU", "SiLU", "Sigmoid", "Tanh"))
)
CASES: Mapping[str, Case] = {
    "two layers, as GGUF has them": Case("gemma_embedding", "mean", PLAIN),
    "one layer, as GGUF has it": Case("gemma_embedding", "mean", PLAIN[1:]),
    "a bias": Case("gemma_embedding", "mean", (Layer(7, bias=True, activation=IDENTITY),)),
    "three layers": Case("gemma_embedding", "mean", (*PLAIN, *PLAIN[1:])),
    "as LaBSE": Case("bert", "cls", (Layer(0, bias=True, activation=TANH),)),
    "as distiluse": Case("distilbert", "mean", (Layer(7, bias=True, activation=TANH),), False),
    "every activation": Case("modernbert", "mean", EVERY),
    "a decoder": Case("qwen3", "last", (Layer(9, bias=True, activation=IDENTITY),)),
}
IN_GGUF = ("two layers, as GGUF has them", "one layer, as GGUF has it")


def write(folder: Path, name: str) -> Path:
    """The folder of a case."""
    family, pooling, layers, normalize = CASES[name]
    head = json.loads(gzip.decompress((HERE / "random" / f"{family}.json.gz").read_bytes()))
    row = head["rows"][0]
    folder.mkdir(parents=True)
    _write_json(folder / "config.json", row["config"])
    shapes = unfolded(row["tensors"])
    save_file(tensors(shapes, head["norm"]), folder / "model.safetensors", {"format": "pt"})
    listed = [("Transformer", ""), ("Pooling", "1_Pooling")]
    width = inner = row["config"].get("hidden_size") or row["config"]["dim"]
    for index, layer in enumerate(layers, len(listed)):
        outer = layer.width or width
        path = f"{index}_Dense"
        listed.append(("Dense", path))
        _write_layer(folder / path, layer, inner, outer)
        inner = outer
    listed += [("Normalize", f"{len(listed)}_Normalize")] if normalize else []
    _write_json(
        folder / "modules.json",
        [
            {"idx": index, "name": str(index), "path": path, "type": f"{KINDS}{kind}"}
            for index, (kind, path) in enumerate(listed)
        ],
    )
    flags = {flag: name == pooling for name, flag in FLAGS.items()}
    (folder / "1_Pooling").mkdir()
    sizes = {"word_embedding_dimension": width}
    _write_json(folder / "1_Pooling" / "config.json", {**sizes, **flags})
    return folder


def _write_layer(folder: Path, layer: Layer, inner: int, outer: int) -> None:
    folder.mkdir()
    _write_json(
        folder / "config.json",
        {
            "in_features": inner,
            "out_features": outer,
            "bias": layer.bias,
            "activation_function": layer.activation,
        },
    )
    shapes = {"linear.weight": [outer, inner]} | ({"linear.bias": [outer]} if layer.bias else {})
    made = {name: tensor(f"{folder.name}.{name}", shape, 1.0) for name, shape in shapes.items()}
    save_file(made, folder / "model.safetensors", {"format": "pt"})


def given() -> dict[str, Array]:
    """Two texts, of which the second is shorter."""
    mask = np.ones((2, 11), np.int64)
    mask[1, 6:] = 0
    ids = 6 + np.arange(22, dtype=np.int64).reshape(2, 11) * 5 % 13
    return {"input_ids": np.where(mask == 1, ids, 0), "attention_mask": mask}


def _write_json(file: Path, content: Config | list[Config]) -> None:
    file.write_text(json.dumps(content))
