"""Descriptions of a model: the key/values of a GGUF file, the small files of a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from maxtool.conversion import gguf_metadata, hf_files
from maxtool.conversion.request import Request
from maxtool.recipe import Plan, written_notes
from maxtool.recipe.fitted_tokenizer import model_tokenizer
from maxtool.recipe.quantized_types import QuantizedTypes
from maxtool.weights import TensorSpec
from maxtool.weights.formats.safetensors import DEFAULT_METADATA


@dataclass(frozen=True)
class Description:
    """The description of a model in an output.

    Attributes:
        metadata: Key/values of the header of a file.
        files: Content of the small files of a folder, by name.
        notes: What is worth knowing of them.
    """

    metadata: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def described(
    planned: Plan,
    specs: Sequence[TensorSpec],
    request: Request,
    quantized: QuantizedTypes,
    *,
    recast: bool,
) -> Description:
    """Describe the model: by the source's own words, as they stand in its dialect.

    Args:
        planned: The source, matched with its recipe.
        specs: What is written.
        request: What was asked.
        quantized: How tensors were quantized.
        recast: Whether some of them were cast to another type.
    """
    target = request.target
    notes: list[str] = []
    if target == "npz":
        return Description()
    if target == "safetensors":
        return Description(DEFAULT_METADATA)
    if planned.dialect == target:
        content = KEPT[target](planned, specs, request.name)
    else:
        tokenizer, notes = model_tokenizer(planned)
        content = MADE[target](planned, specs, tokenizer, request.name)
    if request.quantize is not None:
        mix = None if recast else request.quantize.mix
        content |= gguf_metadata.of_quantized(mix, quantized.importance)
    if target == "gguf" and planned.dialect != "gguf":
        notes = [*notes, *written_notes(planned.recipe, "gguf", planned.config)]
    if not any(name.startswith(TOKENIZER[target]) for name in content):
        notes = [*notes, "the source has no tokenizer, so the output has none"]
    held = {"metadata": DEFAULT_METADATA} | {HELD_AS[target]: content}
    return Description(**held, notes=tuple(notes))


# How what describes a tokenizer is called: a key, or files.
TOKENIZER = {"gguf": "tokenizer.ggml.model", "hf": "tokenizer"}
HELD_AS = {"gguf": "metadata", "hf": "files"}
KEPT: Mapping[str, Callable[..., dict[str, Any]]] = {
    "gguf": gguf_metadata.from_gguf,
    "hf": hf_files.from_huggingface,
}
MADE: Mapping[str, Callable[..., dict[str, Any]]] = {
    "gguf": gguf_metadata.from_huggingface,
    "hf": hf_files.from_gguf,
}
