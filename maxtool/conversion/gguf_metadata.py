"""The key/values of a GGUF file: what llama.cpp's converter writes, in its order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from maxtool.conversion import pair_files, suppressed_tokens
from maxtool.conversion.output_types import FILE_TYPES, main_type
from maxtool.quantization.mixes import Mix
from maxtool.recipe import Plan, written_keys
from maxtool.recipe.naming import GGUF_NAME, model_name, size_label
from maxtool.tokenizer import Tokenizer, to_gguf
from maxtool.weights import Checkpoint, TensorSpec
from maxtool.weights.importance_file import ImportanceFile

FILE_TYPE = "general.file_type"
QUANTIZATION_VERSION = "general.quantization_version"
VERSION = np.uint32(2)  # ggml.h's GGML_QNT_VERSION
SPLIT = "split."
TYPE_COUNT = "tokenizer.ggml.token_type_count"  # rows of a table of the network, all the same
EXPERTS = "_exps."  # in the name of a tensor that stacks the experts of a layer


def from_huggingface(
    plan: Plan,
    specs: Sequence[TensorSpec],
    tokenizer: Tokenizer | None,
    name: str | None = None,
) -> dict[str, Any]:
    """The key/values of a checkpoint that comes from a Hugging Face folder.

    Args:
        plan: The source.
        specs: The tensors to be written.
        tokenizer: The tokenizer, with ids that the model has rows for.
        name: What the model is called; its own name when not given.
    """
    keys = written_keys(plan.recipe, "gguf", plan.config, _described_by(plan, specs, name))
    tokens: dict[str, object] = {}
    if tokenizer is not None:
        vocabulary = int(plan.config["vocab_size"])
        architecture = str(keys["general.architecture"])
        tokens = to_gguf(tokenizer, plan.checkpoint.config or {}, vocabulary, architecture)
    # What a recipe says of tokens is said of SentencePiece models, after their own keys.
    of_tokens = [key for key in keys if key.startswith("tokenizer.") and key != TYPE_COUNT]
    said = {key: keys.pop(key) for key in of_tokens}
    if tokens.get("tokenizer.ggml.model") == "llama":
        tokens |= said
    pairs = pair_files.gguf_keys(plan, str(keys["general.architecture"]), tokenizer, tokens)
    return {
        **{key: typed(value) for key, value in (keys | suppressed_tokens.gguf_keys(plan)).items()},
        **pairs,
        QUANTIZATION_VERSION: VERSION,
        **{key: value for key, value in tokens.items() if key not in pairs},
    }


def _described_by(plan: Plan, specs: Sequence[TensorSpec], name: str | None) -> dict[str, Any]:
    """The keys that name the file as a whole; the recipe's order says whether it has a type."""
    keys: dict[str, Any] = {
        GGUF_NAME: name or model_name(plan),
        "general.size_label": model_label(specs),
    }
    order = plan.recipe.order.get("gguf", ())
    file_type = FILE_TYPES.get(main_type(specs))
    if file_type is not None and (not order or FILE_TYPE in order):
        keys[FILE_TYPE] = file_type
    return keys


def from_gguf(plan: Plan, specs: Sequence[TensorSpec], name: str | None = None) -> dict[str, Any]:
    """A GGUF file's own key/values, brought up to date with the types of ``specs``."""
    keys = kept(plan.checkpoint, specs)
    if any(spec.encoding for spec in specs):
        keys.setdefault(QUANTIZATION_VERSION, VERSION)
    return keys | ({GGUF_NAME: name} if name else {})


def kept(checkpoint: Checkpoint, specs: Sequence[TensorSpec]) -> dict[str, Any]:
    """A GGUF file's own key/values, with the file type of ``specs`` where it is another."""
    keys = {key: value for key, value in checkpoint.metadata.items() if not key.startswith(SPLIT)}
    before = main_type(checkpoint.tensors.values())
    file_type = FILE_TYPES.get(main_type(specs))
    if before is not main_type(specs) and file_type is not None:
        keys[FILE_TYPE] = np.uint32(file_type)
    return keys


def of_quantized(mix: Mix | None, importance: ImportanceFile | None) -> dict[str, Any]:
    """The key/values that llama-quantize adds: the mix, and what the columns were weighed by.

    Of a path only the file's name is told, so that the same files give the same bytes. Without a
    mix the file's type stays what most of its elements are.
    """
    keys: dict[str, Any] = {} if mix is None else {FILE_TYPE: np.uint32(mix.number)}
    if importance is None:
        return keys
    keys["quantize.imatrix.file"] = importance.file.name
    if importance.dataset:
        keys["quantize.imatrix.dataset"] = importance.dataset
    keys["quantize.imatrix.entries_count"] = np.uint32(len(importance.columns))
    if importance.chunks:
        keys["quantize.imatrix.chunks_count"] = np.uint32(importance.chunks)
    return keys


def typed(value: Any) -> Any:  # noqa: ANN401 - a value of any of GGUF's types
    """A Python value with the GGUF type that llama.cpp's converter gives it."""
    if isinstance(value, bool | str):
        return value
    if isinstance(value, list):
        if isinstance(value[0], str):
            return value
        scalar_type = {bool: np.bool_, float: np.float32}.get(type(value[0]), np.int32)
        return np.asarray(value, scalar_type)
    if isinstance(value, int):
        return (
            np.int32(value)
            if value < 0
            else np.uint32(value)
            if value < 1 << 32
            else np.uint64(value)
        )
    return np.float32(value)


def model_label(specs: Sequence[TensorSpec]) -> str:
    """A model's size as llama.cpp's files are labelled: ``1.1B``, or ``8x7B`` with experts.

    With experts it is their number, and the size of what is left with one of them.
    """
    stacked = [spec for spec in specs if EXPERTS in spec.name and len(spec.shape) > 2]
    if not stacked:
        return size_label(sum(spec.size for spec in specs))
    counts = [spec.shape[-3] for spec in stacked]
    others = sum(spec.size for spec in specs) - sum(spec.size for spec in stacked)
    size = sum(spec.size // count for spec, count in zip(stacked, counts, strict=True))
    return f"{sum(counts) // len(counts)}x{size_label(others + size)}"
