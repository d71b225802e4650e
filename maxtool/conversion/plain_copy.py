"""Plain copies: the tensors of any readable format as they are called there, without a recipe."""

from __future__ import annotations

import json

from maxtool.conversion.description import Description
from maxtool.conversion.gguf_metadata import kept
from maxtool.conversion.hf_files import CONFIG, DTYPE_KEYS, GENERATION, dtype_name
from maxtool.conversion.output_tensors import TensorSource
from maxtool.conversion.request import Request
from maxtool.dtype import DType
from maxtool.errors import UsageError
from maxtool.recipe import sentence_transformers
from maxtool.tokenizer.huggingface import CARRIED, additional
from maxtool.weights import Checkpoint, TensorInfo, TensorSpec
from maxtool.weights.formats.safetensors import DEFAULT_METADATA
from maxtool.weights.source_file import whole_file


def copied_tensors(
    checkpoint: Checkpoint, request: Request
) -> tuple[list[TensorSource], list[str]]:
    """Every tensor with its name in the source; blocks are decoded where only GGUF holds them."""
    pairs = [(info, _spec(info, request)) for info in checkpoint.tensors.values()]
    decoded = sum(info.encoding is not None and spec.encoding is None for info, spec in pairs)
    notes = [f"{decoded} quantized tensors are decoded"] if decoded else []
    return [(spec, spec.name) for _, spec in pairs], notes


def _spec(info: TensorInfo, request: Request) -> TensorSpec:
    is_float = info.encoding is not None or info.dtype.is_float()
    wide = info.dtype is DType.float32 and info.encoding is None
    stays = request.target == "gguf" and wide and len(info.shape) < 2  # as llama.cpp wants them
    if request.dtype is not None and is_float and not stays:
        return TensorSpec(info.name, request.dtype, info.shape)
    encoding = info.encoding if request.target == "gguf" else None
    return TensorSpec(info.name, info.dtype, info.shape, encoding)


def copied_description(
    checkpoint: Checkpoint, specs: list[TensorSpec], request: Request
) -> Description:
    """Keep what the source says of its model, where the output's format says the same."""
    held = {"gguf": "gguf", "safetensors": "safetensors"}.get(request.target)
    if request.target == "hf":
        return Description(DEFAULT_METADATA, _small_files(checkpoint, specs, request))
    if checkpoint.format == held:
        is_gguf = held == "gguf"
        return Description(kept(checkpoint, specs) if is_gguf else checkpoint.metadata)
    left_out = dict(checkpoint.metadata) not in ({}, DEFAULT_METADATA)
    notes = [f"the metadata of {checkpoint.format} is left out"] if left_out else []
    return Description(DEFAULT_METADATA if held == "safetensors" else {}, notes=tuple(notes))


def _small_files(
    checkpoint: Checkpoint, specs: list[TensorSpec], request: Request
) -> dict[str, bytes]:
    """The configuration of a folder, its tokenizer, and the modules behind, as they stand there."""
    if checkpoint.config is None:
        what = "--no-recipe copies a config.json and makes none, and the source has none"
        hint = "name the output NAME.safetensors, for the tensors alone"
        raise UsageError(what, file=request.output, hint=hint)
    config = dict(checkpoint.config)
    if any(spec.dtype.is_float() for spec in specs):
        config |= {key: dtype_name(specs) for key in DTYPE_KEYS if key in config}
    files = {CONFIG: (json.dumps(config, indent=2, sort_keys=True) + "\n").encode()}
    folder = checkpoint.folder
    names = (GENERATION, *CARRIED, *additional(folder), *sentence_transformers.carried(folder))
    there = {name: folder / name for name in names if (folder / name).is_file()}
    return files | {name: whole_file(file) for name, file in there.items()}
