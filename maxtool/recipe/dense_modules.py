"""Layers behind the pooling, of which sentence-transformers keeps each in a folder of its own.

A ``Dense`` module's ``config.json`` has its sizes and its activation, ``model.safetensors`` (or
``pytorch_model.bin``) a matrix and perhaps a bias. Recipes see the sizes as keys below
``sentence_transformers``, and the tensors, numbered in the order of the modules, below that name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from maxtool.errors import MalformedFile
from maxtool.recipe.name_patterns import Pattern
from maxtool.recipe.sentence_modules import MOST, SentenceModule, modules_of
from maxtool.weights import Checkpoint, formats
from maxtool.weights.formats import HUGGING_FACE
from maxtool.weights.jsonfile import read_object
from maxtool.weights.source_file import Stamp
from maxtool.weights.tensor_info import TensorInfo

KIND, CONFIG = "Dense", "config.json"
# What holds a module's tensors, of which the first that is there is read.
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
SLASH = "/"  # between a folder and a name
TENSOR = "sentence_transformers.dense.{module}.{tensor}"
# Keys of recipes: of each layer how wide its output is, whether it has a bias, its activation.
FEATURES, BIASES, ACTIVATIONS = "dense_features", "dense_biases", "dense_activations"
# What else a configuration may say, and what it is where it does not.
USUAL = {
    "module_input_name": "sentence_embedding",
    "module_output_name": "sentence_embedding",
    "use_residual": False,
}
# Classes of torch, by our names for what they compute.
CLASSES = {
    "identity": "torch.nn.modules.linear.Identity",
    "tanh": "torch.nn.modules.activation.Tanh",
    "relu": "torch.nn.modules.activation.ReLU",
    "gelu": "torch.nn.modules.activation.GELU",
    "silu": "torch.nn.modules.activation.SiLU",
    "sigmoid": "torch.nn.modules.activation.Sigmoid",
}
USUAL_CLASS = CLASSES["tanh"]
NAMES = {path: name for name, path in CLASSES.items()} | {
    f"torch.nn.{path.rpartition('.')[2]}": name for name, path in CLASSES.items()
}


def read(folder: Path, modules: Sequence[SentenceModule]) -> dict[str, Any]:
    """The keys of the layers among some modules; none where there are none of these."""
    configs = [_config(folder / module.path / CONFIG) for module in modules if module.kind == KIND]
    if not configs:
        return {}
    return {
        FEATURES: [config["out_features"] for config in configs],
        BIASES: [config.get("bias", True) for config in configs],
        ACTIVATIONS: [_activation(config) for config in configs],
        **{name: _said(name, usual, configs) for name, usual in USUAL.items()},
    }


def configs(keys: Mapping[str, Any], width: int) -> list[dict[str, object]]:
    """The configuration of each layer that ``keys`` tell of, behind vectors of ``width``."""
    widths = [width, *keys.get(FEATURES, ())]
    rows = zip(widths, widths[1:], keys.get(BIASES, ()), keys.get(ACTIVATIONS, ()), strict=False)
    return [
        {
            "in_features": inner,
            "out_features": outer,
            "bias": bool(bias),
            "activation_function": CLASSES[activation],
        }
        for inner, outer, bias, activation in rows
    ]


def with_dense(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with the tensors of its layers behind the pooling, which come first."""
    return _joined(
        checkpoint, lambda number, _path, name: TENSOR.format(module=number, tensor=name)
    )


def with_folders(checkpoint: Checkpoint) -> Checkpoint:
    """The same, their names behind those of their folders: ``2_Dense/linear.weight``."""
    return _joined(checkpoint, lambda _number, path, name: f"{path}{SLASH}{name}")


def without_folders(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint without what :func:`with_folders` joins to it."""
    paths = {module.path for module in _layers(checkpoint)}
    held = checkpoint.tensors.items()
    tensors = {name: one for name, one in held if name.partition(SLASH)[0] not in paths}
    return replace(checkpoint, tensors=tensors) if paths else checkpoint


def _layers(checkpoint: Checkpoint) -> list[SentenceModule]:
    """The layers that the folder of a checkpoint lists."""
    return modules_of(checkpoint.folder, KIND) if checkpoint.format in HUGGING_FACE else []


def _joined(checkpoint: Checkpoint, named: Callable[[int, str, str], str]) -> Checkpoint:
    """The checkpoint behind the tensors of its layers, called by their number, folder and name."""
    tensors: dict[str, TensorInfo] = {}
    seen: dict[Path, Stamp] = {}
    for number, module in enumerate(_layers(checkpoint)):
        folder = checkpoint.folder / module.path
        file = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
        if file is not None:
            _, index, stamps = formats.read(file)
            seen |= stamps
            for info in index.tensors:
                name = named(number, module.path, info.name)
                tensors[name] = replace(info, name=name)
    if not seen:
        return checkpoint
    return replace(
        checkpoint,
        files=(*seen, *checkpoint.files),
        tensors={**tensors, **checkpoint.tensors},
        seen={**checkpoint.seen, **seen},
    )


def placed(name: str, folders: Sequence[str]) -> tuple[str, str] | None:
    """The folder in which a tensor of a layer is kept, and its name there; None for any other."""
    found = Pattern("sentence_transformers.dense.{module}.*").match(name)
    if found is None or found["module"] >= len(folders):
        return None
    return folders[found["module"]], name.split(".", 3)[3]


def _config(file: Path) -> dict[str, object]:
    config = read_object(file, most=MOST)
    if "out_features" not in config:
        raise MalformedFile("a Dense module without out_features", file=file)
    return config


def _said(name: str, usual: object, configs: Sequence[Mapping[str, object]]) -> object:
    """The value that configurations have of a key: one that is not usual, if there is one."""
    said = [value for config in configs if (value := config.get(name)) is not None]
    return next((value for value in said if value != usual), usual)


def _activation(config: Mapping[str, object]) -> str:
    """Our name for an activation, or the class's own where it has none."""
    path = str(config.get("activation_function", USUAL_CLASS))
    return NAMES.get(path, path)
