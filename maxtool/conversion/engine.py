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
from maxtool.conversion.replaceable import strangers
from maxtool.conversion.request import DIALECT, Request
from maxtool.conversion.streaming import chunks
from maxtool.conversion.tensors import Made, is_rounded, planned_tensors
from maxtool.conversion.verification import verify_safetensors
from maxtool.errors import UsageError
from maxtool.files import check_output, check_space, staged
from maxtool.recipe import (
    Emission,
    Plan,
    find_recipe,
    load_recipe,
    plan,
    written_keys,
    written_notes,
)
from maxtool.recipe.fitted_tokenizer import model_tokenizer
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
        nbytes: Bytes of the whole output.
    """

    request: Request
    plan: Plan
    tensors: list[Made]
    metadata: dict[str, Any]
    files: dict[str, bytes]
    notes: list[str]
    nbytes: int = 0

    @property
    def specs(self) -> list[TensorSpec]:
        """What is written, in order."""
        return [spec for spec, _ in self.tensors]

    @property
    def types(self) -> dict[str, int]:
        """How many tensors are written in each type."""
        return dict(Counter(spec.type_name for spec in self.specs))


@dataclass
class Report:
    """What a conversion did.

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
    """Plan a conversion from headers, and check all that can be checked before it is run.

    Raises:
        UsageError: If the request contradicts itself, or the output is in the way.
        InputError: If the source cannot be read.
        ModelMismatch: If no recipe recognises the source, or it does not fit its recipe.
        MachineLacks: If the disk has no room for the output.
    """
    request.check()
    checkpoint = open_checkpoint(request.source)
    check_output(request.output, force=request.force, sources=checkpoint.protected)
    _check_replaceable(request)
    recipe = load_recipe(request.recipe) if request.recipe else find_recipe(checkpoint)
    planned = plan(recipe, checkpoint, ignore=request.ignore)
    planned.check()
    if planned.dialect != DIALECT[request.target]:
        written_keys(recipe, DIALECT[request.target], planned.config)
    tensors, notes = planned_tensors(planned, request)
    specs = [spec for spec, _ in tensors]
    WRITERS[request.target].check(specs)
    made = Conversion(
        request, planned, tensors, {}, {}, [*checkpoint.notes, *planned.notes, *notes]
    )
    _describe(made)
    made.nbytes = _size(made)
    check_space(request.output, made.nbytes)
    return made


def convert(conversion: Conversion, progress: Callable[[int], None] | None = None) -> Report:
    """Run a planned conversion.

    Args:
        conversion: What :func:`prepare` gave.
        progress: Told the bytes written since the last call.

    Raises:
        ModelMismatch: If values do not fit the type they are to have.
        VerificationFailed: If the safetensors library does not read what was written.
    """
    request, folder = conversion.request, conversion.request.target == "hf"
    report = Report(request.output, conversion.nbytes)
    with staged(request.output, folder=folder, replace=request.force) as path:
        tensors = path / TENSORS_FILE if folder else path
        WRITERS[request.target].write(
            tensors,
            conversion.specs,
            _arrays(conversion, report),
            conversion.metadata,
            progress,
        )
        if request.target != "gguf":
            verify_safetensors(tensors, conversion.specs, request.output)
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
        report.warnings.append(
            f"values of {named} are rounded or left out by the recipe's operations"
        )
    return report


# The modules of the two formats have the same three functions.
WRITERS: Mapping[str, Any] = {"gguf": gguf, "hf": safetensors, "safetensors": safetensors}


# --- planning ------------------------------------------------------------------------------------


def _check_replaceable(request: Request) -> None:
    """Let --force replace a checkpoint, never a folder of other things."""
    output, hint = request.output, "choose another --output, or remove the folder yourself"
    if not output.is_dir() or output.is_symlink():
        return
    if request.target != "hf":
        raise UsageError("the output is a folder, and a file was asked for", file=output, hint=hint)
    if found := strangers(output):
        what = (
            "the output folder holds files that do not belong to a checkpoint; it is not replaced"
        )
        raise UsageError(what, file=output, problems=listed(found), hint=hint)


def _describe(made: Conversion) -> None:
    """Fill in the key/values or the small files."""
    source, target = made.plan.dialect, made.request.target
    if target == "gguf":
        made.metadata = _description(made)
        if source != target:
            made.notes += written_notes(made.plan.recipe, "gguf", made.plan.config)
        if not gguf_metadata.described(made.metadata):
            made.notes.append("the source has no tokenizer, so the output has none")
    elif target == "hf":
        made.files = _description(made)
        if not any(name.startswith("tokenizer") for name in made.files):
            made.notes.append("the source has no tokenizer, so the output has none")


def _description(made: Conversion) -> dict[str, Any]:
    """The source's description of itself, kept as it stands in its own dialect."""
    planned, request = made.plan, made.request
    if planned.dialect == request.target:
        return KEPT[request.target](planned, made.specs, request.name)
    found, notes = model_tokenizer(planned)
    made.notes += notes
    return MADE[request.target](planned, made.specs, found, request.name)


KEPT: Mapping[str, Callable[..., dict[str, Any]]] = {
    "gguf": gguf_metadata.from_gguf,
    "hf": hf_files.from_huggingface,
}
MADE: Mapping[str, Callable[..., dict[str, Any]]] = {
    "gguf": gguf_metadata.from_huggingface,
    "hf": hf_files.from_gguf,
}


def _size(made: Conversion) -> int:
    if made.request.target == "gguf":
        return gguf.header(made.specs, made.metadata)[1][-1]
    payload = sum(spec.nbytes for spec in made.specs)
    return len(safetensors.header(made.specs)) + payload + sum(map(len, made.files.values()))


# --- streaming -----------------------------------------------------------------------------------


def _arrays(conversion: Conversion, report: Report) -> Iterator[Payload]:
    for spec, made in conversion.tensors:
        if isinstance(made, Emission):
            yield _array(conversion.plan, spec, made, report)
        else:
            yield made


def _array(planned: Plan, spec: TensorSpec, emission: Emission, report: Report) -> Payload:
    if is_rounded(planned, emission):
        report.rounded.add(emission.name)
    made = chunks(planned, spec, emission, report.warnings.append)
    return Chunked(spec.stored_dtype, spec.stored_shape, made)
