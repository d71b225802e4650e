"""LoRA adapters of the peft library: what they change, and merging it into float weights.

The layout is that of `save_pretrained` in peft: adapter_config.json, and the two factors of each
change in adapter_model.safetensors. A merged weight is W + scale * B @ A, computed in float32 and
rounded once to the type of W; the scale is alpha / r, or alpha / sqrt(r) with rsLoRA.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.casting import cast, widen
from maxtool.dtype import DType
from maxtool.errors import InputError, MissingFile, ModelMismatch
from maxtool.weights.checkpoint import Checkpoint, open_checkpoint
from maxtool.weights.composite import CompositeTensor, View, stored_parts
from maxtool.weights.jsonfile import is_float32, read_object
from maxtool.weights.names import listed
from maxtool.weights.source_file import Stamp, is_file, stamp
from maxtool.weights.tensor_info import TensorInfo

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
# The second of two factors by the first, and whether their product is transposed.
FACTORS = {
    "lora_A.weight": ("lora_B.weight", False),
    "lora_embedding_A": ("lora_embedding_B", True),
}
SECOND = frozenset(second for second, _ in FACTORS.values())
PLAIN_NAME = re.compile(r"[\w.]+")
# Ways to begin that change the weights beneath the adapter too, so that it fits no other weights.
CHANGED_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
# Options under which a weight would become another than W + scale * B @ A.
REFUSED = (
    *("use_dora", "use_qalora", "use_bdlora", "lora_bias", "layer_replication"),
    *("alora_invocation_tokens", "trainable_token_indices", "target_parameters"),
    *("arrow_config", "kasa_config", "monteclora_config", "velora_config"),
)
# The weight beneath the factors, which peft saves with those of embeddings.
BENEATH = ".base_layer.weight"


@dataclass(frozen=True, slots=True)
class MergedTensor(CompositeTensor):
    """A weight with the change of an adapter; file and offset are the weight's.

    Attributes:
        base: The weight.
        first: A, [r, inputs].
        second: B, [outputs, r].
        scale: What their product is multiplied with.
        transposed: Whether the weight is [inputs, outputs].
    """

    base: TensorInfo = field(kw_only=True)
    first: TensorInfo = field(kw_only=True)
    second: TensorInfo = field(kw_only=True)
    scale: float = field(kw_only=True)
    transposed: bool = field(kw_only=True)

    @property
    def parts(self) -> tuple[TensorInfo, ...]:
        """The tensors that make the weight, which are of two files."""
        return (*stored_parts(self.base), self.first, self.second)

    def read(self, view: View) -> NDArray[Any]:
        """The merged weight; ``view`` gives the data of a tensor as it is stored.

        Raises:
            ModelMismatch: If a finite value of the weight is not finite with the change.
        """
        base, factors = widen(view(self.base)), (widen(view(self.second)), widen(view(self.first)))
        with np.errstate(all="ignore"):
            change = np.matmul(*factors) * np.float32(self.scale)
            total = base + (change.T if self.transposed else change)
        merged, lost = cast(np.ascontiguousarray(total), self.dtype)
        lost += int(np.count_nonzero(np.isfinite(base) & ~np.isfinite(total)))
        if lost:
            what = f"with the adapter, {lost} of {self.size} values are not finite numbers"
            raise ModelMismatch(f"{what} of {self.dtype.name}", tensor=self.name)
        return merged


@dataclass(frozen=True)
class Adapter:
    """An adapter: its folder, what its configuration says, and its tensors."""

    folder: Path
    config: Mapping[str, Any]
    checkpoint: Checkpoint

    @property
    def seen(self) -> dict[Path, Stamp]:
        """Every file of it, as it was when it was opened."""
        file = self.folder / CONFIG
        return {**self.checkpoint.seen, file: stamp(file)}

    @property
    def changed(self) -> list[str]:
        """The names of the weights that it changes, as its base model has them."""
        parted = map(_parted, self.checkpoint.tensors)
        return list(dict.fromkeys(f"{module}.weight" for module, factor in parted if factor))

    @property
    def beneath(self) -> list[str]:
        """The names of whole weights in it, those that it was trained on."""
        return [name for name in self.checkpoint.tensors if name.endswith(BENEATH)]


def is_adapter(path: Path) -> bool:
    """Return whether a path is the folder of an adapter."""
    return is_file(path / CONFIG)


def open_adapter(folder: Path) -> Adapter:
    """Open an adapter, reading its configuration and the headers of its tensors.

    Raises:
        MissingFile: If the folder lacks a file of an adapter.
        InputError: If it changes weights in another way than by W + scale * B @ A.
    """
    config = _read_config(folder)
    return Adapter(folder, config, open_checkpoint(folder / TENSORS))


def merged(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    """A checkpoint with an adapter merged into its weights.

    Raises:
        MissingFile: If the folder lacks a file of an adapter.
        InputError: If it holds what cannot be merged.
        ModelMismatch: If parts of it fit no weight; it lists them all.
    """
    adapter = open_adapter(folder)
    changes, problems = matched(adapter, checkpoint.tensors)
    for name in adapter.beneath:
        problems += _unlike(checkpoint, adapter.checkpoint, name)
    if problems:
        raise unfit(adapter, "the checkpoint", problems)
    return replace(
        checkpoint,
        tensors={**checkpoint.tensors, **changes},
        seen={**checkpoint.seen, **adapter.seen},
        notes=(*checkpoint.notes, f"an adapter is merged into {len(changes)} tensors"),
    )


def unfit(adapter: Adapter, what: str, problems: list[str]) -> ModelMismatch:
    """The error that an adapter does not fit, which lists the parts that do not."""
    said = f"the adapter does not fit {what}"
    return ModelMismatch(said, file=adapter.folder, problems=listed(problems))


def _read_config(folder: Path) -> Mapping[str, Any]:
    """The adapter's configuration, if it says that all changes are W + scale * B @ A."""
    file = folder / CONFIG
    for name in (CONFIG, TENSORS):
        if not (folder / name).is_file():
            raise MissingFile(f"an adapter of peft has a file {name}", file=folder)
    config = read_object(file)
    if config.get("peft_type") != "LORA":
        raise InputError(f"peft_type is {config.get('peft_type')!r:.80}; LORA is read", file=file)
    asked = [key for key in REFUSED if config.get(key)]
    if asked:
        raise InputError(f"an adapter with {asked[0]} is not supported", file=file)
    begun = str(config.get("init_lora_weights")).lower()
    if begun.startswith(CHANGED_BASE):
        what = f"init_lora_weights is {begun}, which changed the weights beneath the adapter too"
        raise InputError(what, file=file, hint="merge it with peft, where these weights are")
    if not is_float32(config.get("lora_alpha")) or type(config.get("r")) is not int:
        what = "lora_alpha has to be a number of float32, and r a whole number"
        raise InputError(what, file=file)
    return config


def matched(
    adapter: Adapter, tensors: Mapping[str, TensorInfo]
) -> tuple[dict[str, MergedTensor], list[str]]:
    """The tensors that change, by name, and lines on parts of the adapter that fit none."""
    changes: dict[str, MergedTensor] = {}
    problems: list[str] = []
    held = adapter.checkpoint.tensors
    for name, info in held.items():
        module, factor = _parted(name)
        if name.endswith(BENEATH):
            continue
        if factor in SECOND and f"{name[: -len(factor)]}{_first_of(factor)}" in held:
            continue
        target = f"{module}.weight" if factor in FACTORS else module
        base = tensors.get(target)
        try:
            if base is None:
                raise ValueError(f"the checkpoint has no {target}")
            if target in changes:
                raise ValueError(f"a second change of {target}")
            changes[target] = _change(base, info, name, factor, adapter.checkpoint, adapter.config)
        except ValueError as error:
            problems.append(f"{name}: {error}")
    return changes, problems


def _unlike(checkpoint: Checkpoint, adapter: Checkpoint, name: str) -> list[str]:
    """A line on a weight that the adapter was trained on, if the checkpoint has another."""
    target = name.removeprefix(PREFIX).removesuffix(BENEATH) + ".weight"
    theirs = adapter.read(name).astype(DType.float32).data
    if target in checkpoint.tensors:
        ours = checkpoint.read(target).astype(DType.float32).data
        if np.array_equal(ours, theirs):
            return []
    return [f"{name}: the checkpoint has not this {target}, which the adapter was trained on"]


def _parted(name: str) -> tuple[str, str]:
    """The module that a tensor of an adapter belongs to, and what it is to it."""
    inner = name.removeprefix(PREFIX)
    for factor in (*FACTORS, *SECOND):
        if inner.endswith(f".{factor}"):
            return inner[: -len(factor) - 1], factor
    return inner, ""


def _first_of(second: str) -> str:
    return next(first for first, (other, _) in FACTORS.items() if other == second)


def _change(
    base: TensorInfo,
    info: TensorInfo,
    name: str,
    factor: str,
    adapter: Checkpoint,
    config: Mapping[str, Any],
) -> MergedTensor:
    """The tensor as it is with its part of the adapter; ``ValueError`` if that does not fit."""
    if not factor:
        raise ValueError("a whole tensor beside the factors; only these are read")
    if factor not in FACTORS:
        raise ValueError("its first factor is missing")
    other, embedding = FACTORS[factor]
    second = adapter.tensors.get(f"{name[: -len(factor)]}{other}")
    if second is None:
        raise ValueError("its second factor is missing")
    if base.encoding is not None or not base.dtype.is_float():
        raise ValueError(f"{base.name} is {base.type_name}, and only float weights can change")
    transposed = embedding or config.get("fan_in_fan_out") is True
    shape = tuple(reversed(base.shape)) if transposed else base.shape
    if len(shape) != 2 or (second.shape[:1], info.shape[1:]) != (shape[:1], shape[1:]):
        raise ValueError(f"{list(second.shape)} x {list(info.shape)} does not fit {list(shape)}")
    if second.shape[1:] != info.shape[:1]:
        raise ValueError(f"{list(second.shape)} and {list(info.shape)} are not of one rank")
    return MergedTensor(
        *(base.name, base.dtype, base.shape, None, base.file, base.offset),
        base=base,
        first=info,
        second=second,
        scale=_scale(_parted(name)[0], info.shape[0], config),
        transposed=transposed,
    )


def _scale(module: str, rank: int, config: Mapping[str, Any]) -> float:
    """The number that the product of a module's factors is multiplied with."""
    expected = _of_pattern(config, "rank_pattern", module, config["r"])
    alpha = _of_pattern(config, "alpha_pattern", module, config["lora_alpha"])
    if rank != expected or not rank:
        raise ValueError(f"it is of rank {rank}, and the configuration says {expected}")
    return float(alpha / (math.sqrt(rank) if config.get("use_rslora") else rank))


def _of_pattern(config: Mapping[str, Any], key: str, module: str, default: float) -> float:
    """The number for a module; peft's patterns are expressions, of which plain names are read."""
    patterns = config.get(key) or {}
    if not isinstance(patterns, dict):
        raise ValueError(f"{key} is not a table")
    for pattern, value in patterns.items():
        if not PLAIN_NAME.fullmatch(pattern) or not is_float32(value):
            raise ValueError(f"{key} has {pattern!r:.80}; only names of modules are read")
        if module == pattern or module.endswith(f".{pattern}"):
            return float(value)
    return default
