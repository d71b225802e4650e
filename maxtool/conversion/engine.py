"""A conversion: planned from headers, then streamed tensor by tensor, whole or not at all.

Memory is bounded by the largest tensor that is rearranged within its rows; all others are read,
converted and written a few rows at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maxtool.conversion import gguf_metadata, hf_files
from maxtool.conversion.output_tensors import TensorSource, is_rounded, planned_tensors
from maxtool.conversion.replaceable import strangers
from maxtool.conversion.request import DIALECT, Request
from maxtool.conversion.streaming import chunks
from maxtool.conversion.verification import verify_safetensors
from maxtool.errors import UsageError
from maxtool.files import check_output, check_space, staged
from maxtool.quantization.scheme import files_read
from maxtool.recipe import (
    OutputTensor,
    Plan,
    find_recipe,
    load_recipe,
    plan,
    written_keys,
    written_notes,
)
from maxtool.recipe.fitted_tokenizer import model_tokenizer
from maxtool.recipe.quantized_types import QuantizedTypes
from maxtool.weights import TensorSpec, open_checkpoint
from maxtool.weights.formats import gguf, safetensors
from maxtool.weights.formats.payload import Chunked, Payload
from maxtool.weights.names import listed

TENSORS_FILE = "model.safetensors"


@dataclass
class Conversion:
    """A conversion that has been planned, and fits.

    Attributes:
        request: What was asked.
        plan: The source, matched with its recipe.
        tensors: What is written, in order, each with how it is made, or what it holds.
        metadata: Key/values of a GGUF output.
        files: Small files of a Hugging Face folder, by name.
        notes: What is worth knowing before it is run.
        quantized: How tensors are quantized; without types if they are not.
        nbytes: Bytes of the whole output.
    """

    request: Request
    plan: Plan
    tensors: list[TensorSource]
    metadata: dict[str, Any]
    files: dict[str, bytes]
    notes: list[str]
    quantized: QuantizedTypes
    nbytes: int = 0

    @property
    def specs(self) -> list[TensorSpec]:
        """Return the tensors to write, in order."""
        return [spec for spec, _ in self.tensors]

    @property
    def types(self) -> dict[str, int]:
        """Count the written tensors of each type."""
        return dict(Counter(spec.type_name for spec in self.specs))


@dataclass
class Report:
    """The result of a conversion.

    Attributes:
        output: What was written.
        nbytes: Its bytes.
        warnings: What was odd about the data.
        rounded: Tensors whose values the recipe's operations rounded.
    """

    output: Path
    nbytes: int
    warnings: list[str] = field(default_factory=list)
    rounded: set[str] = field(default_factory=set)


def prepare(request: Request) -> Conversion:
    """Plan a conversion from headers, and check all that can be checked before it is run."""
    request.check()
    checkpoint = open_checkpoint(request.source)
    check_output(
        request.output,
        force=request.force,
        sources=(*checkpoint.protected, *files_read(request.quantize)),
    )
    _check_replaceable(request)
    recipe = load_recipe(request.recipe) if request.recipe else find_recipe(checkpoint)
    planned = plan(recipe, checkpoint, ignore=request.ignore)
    planned.check()
    if planned.dialect != DIALECT[request.target]:
        written_keys(recipe, DIALECT[request.target], planned.config)
    tensors, notes, quantized = planned_tensors(planned, request)
    specs = [spec for spec, _ in tensors]
    WRITERS[request.target].check(specs)
    conversion = Conversion(
        request, planned, tensors, {}, {}, [*checkpoint.notes, *planned.notes, *notes], quantized
    )
    _describe(conversion)
    conversion.nbytes = _size(conversion)
    check_space(request.output, conversion.nbytes)
    return conversion


def convert(conversion: Conversion, progress: Callable[[int], None] | None = None) -> Report:
    """Run a planned conversion; ``progress`` is told the bytes written since the last call."""
    request, folder = conversion.request, conversion.request.target == "hf"
    report = Report(request.output, conversion.nbytes)
    with staged(request.output, folder=folder, replace=request.force) as path:
        tensors = path / TENSORS_FILE if folder else path
        specs, arrays = conversion.specs, _arrays(conversion, report)
        WRITERS[request.target].write(tensors, specs, arrays, conversion.metadata, progress)
        if request.target != "gguf":
            verify_safetensors(tensors, specs, request.output)
        for name, data in conversion.files.items():
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_bytes(data)
            if progress is not None:
                progress(len(data))
        conversion.plan.checkpoint.check_unchanged()
        _check_replaceable(request)  # it may hold other things by now
    if report.rounded:
        first, others = min(report.rounded), len(report.rounded) - 1
        named = f"{first} and of {others} others" if others else first
        what = "are rounded or left out by the recipe's operations"
        report.warnings.append(f"values of {named} {what}")
    return report


# The modules of the two formats have the same functions.
WRITERS: Mapping[str, Any] = {"gguf": gguf, "hf": safetensors, "safetensors": safetensors}


# --- planning ------------------------------------------------------------------------------------


def _check_replaceable(request: Request) -> None:
    """Accept an output that --force may replace: a checkpoint, never a folder of other things."""
    output, hint = request.output, "choose another --output, or remove the folder yourself"
    if not output.is_dir() or output.is_symlink():
        return
    if request.target != "hf":
        raise UsageError("the output is a folder, and a file was asked for", file=output, hint=hint)
    if found := strangers(output):
        what = "the output folder holds files that do not belong to a checkpoint"
        what = f"{what}; it is not replaced"
        raise UsageError(what, file=output, problems=listed(found), hint=hint)


def _describe(conversion: Conversion) -> None:
    """Fill in the key/values or the small files: the source's own, as they stand in its dialect."""
    planned, request, specs = conversion.plan, conversion.request, conversion.specs
    if request.target == "safetensors":
        return
    if planned.dialect == request.target:
        description = KEPT[request.target](planned, specs, request.name)
    else:
        tokenizer, notes = model_tokenizer(planned)
        conversion.notes += notes
        description = MADE[request.target](planned, specs, tokenizer, request.name)
    if request.target == "gguf":
        if request.quantize is not None:
            mix, file = request.quantize.mix, conversion.quantized.importance
            description |= gguf_metadata.of_quantized(mix, file)
        conversion.metadata = description
        if planned.dialect != "gguf":
            conversion.notes += written_notes(planned.recipe, "gguf", planned.config)
    else:
        conversion.files = description
    if not any(name.startswith(TOKENIZER[request.target]) for name in description):
        conversion.notes.append("the source has no tokenizer, so the output has none")


# How what describes a tokenizer is called: a key, or files.
TOKENIZER = {"gguf": "tokenizer.ggml.model", "hf": "tokenizer"}
KEPT: Mapping[str, Callable[..., dict[str, Any]]] = {
    "gguf": gguf_metadata.from_gguf,
    "hf": hf_files.from_huggingface,
}
MADE: Mapping[str, Callable[..., dict[str, Any]]] = {
    "gguf": gguf_metadata.from_huggingface,
    "hf": hf_files.from_gguf,
}


def _size(conversion: Conversion) -> int:
    writer = WRITERS[conversion.request.target]
    _, offsets = writer.header(conversion.specs, conversion.metadata)
    return int(offsets[-1]) + sum(map(len, conversion.files.values()))


# --- streaming -----------------------------------------------------------------------------------


def _arrays(conversion: Conversion, report: Report) -> Iterator[Payload]:
    for spec, emission in conversion.tensors:
        if isinstance(emission, OutputTensor):
            yield _array(conversion, spec, emission, report)
        else:
            yield emission


def _array(
    conversion: Conversion, spec: TensorSpec, emission: OutputTensor, report: Report
) -> Payload:
    planned, chosen = conversion.plan, conversion.quantized.types.get(spec.name)
    if is_rounded(planned, emission):
        report.rounded.add(emission.name)
    importance = None if chosen is None else chosen.importance
    stream = chunks(planned, spec, emission, report.warnings.append, importance)
    return Chunked(spec.stored_dtype, spec.stored_shape, stream)
