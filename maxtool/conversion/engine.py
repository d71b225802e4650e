"""A conversion: planned from headers, then streamed tensor by tensor, whole or not at all.

Memory is bounded by the largest tensor that is rearranged within its rows; all others are read and
converted a few rows at a time, by as many threads as the request says, and written by one more.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from maxtool.conversion import metadata_edits
from maxtool.conversion.adapters import ConvertedAdapter, converted_adapter
from maxtool.conversion.companions import replacing_companions
from maxtool.conversion.description import described
from maxtool.conversion.edits import edited
from maxtool.conversion.layout import Layout, TensorFile, checksum_lines, laid_out, staged_layout
from maxtool.conversion.objects_there import check_objects
from maxtool.conversion.output_tensors import Origin, TensorSource, planned_tensors
from maxtool.conversion.payloads import PayloadMaker
from maxtool.conversion.plain_copy import copied_description, copied_tensors
from maxtool.conversion.read_back import read_back
from maxtool.conversion.replaceable import strangers
from maxtool.conversion.request import DIALECT, SHARDED, Request
from maxtool.conversion.resuming import ONE_FILE, kept_part, new_journal, trusted
from maxtool.conversion.verification import verify_safetensors
from maxtool.conversion.writers import WRITERS
from maxtool.errors import UsageError
from maxtool.files import (
    FinishedPart,
    Journal,
    PartFolder,
    check_output,
    check_parts,
    check_space,
    sha256,
    shortage,
)
from maxtool.parallel import usable_cores
from maxtool.quantization import accelerated
from maxtool.quantization.codec import Work
from maxtool.quantization.scheme import files_read
from maxtool.recipe import (
    OutputTensor,
    Plan,
    Recipe,
    find_recipe,
    load_recipe,
    plan,
    written_by,
    written_keys,
)
from maxtool.recipe.dense_modules import with_dense
from maxtool.recipe.load import RECIPES_READ
from maxtool.recipe.quantized_types import QuantizedTypes
from maxtool.recipe.recipe_files import RECIPE_SUFFIX
from maxtool.weights import Checkpoint, TensorSpec, open_checkpoint
from maxtool.weights.files_read import files_noted, named
from maxtool.weights.header_copies import is_header_copy
from maxtool.weights.lora import is_adapter, merged
from maxtool.weights.names import listed


@dataclass
class Conversion:
    """A conversion that has been planned, and fits.

    Attributes:
        request: What was asked.
        checkpoint: The source.
        plan: The source, matched with its recipe; None for plain copies and adapters.
        tensors: What is written, in order, each with how it is made, or what it holds.
        layout: The files of the output.
        notes: What is worth knowing before it is run.
        quantized: How tensors are quantized; without types if they are not.
        recipe: The recipe that was used; None for plain copies.
        read: The files that were opened, by name: their paths below the source.
    """

    request: Request
    checkpoint: Checkpoint
    plan: Plan | None
    tensors: list[TensorSource]
    layout: Layout
    notes: list[str]
    quantized: QuantizedTypes
    recipe: Recipe | None = None
    read: Mapping[str, Path] = field(default_factory=dict)

    @property
    def specs(self) -> list[TensorSpec]:
        """Return the tensors to write, in order."""
        return [spec for spec, _ in self.tensors]

    @property
    def types(self) -> dict[str, int]:
        """Count the written tensors of each type."""
        return dict(Counter(spec.type_name for spec in self.specs))

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return the key/values of the output, which its first file has."""
        return self.layout.files[0].metadata

    @cached_property
    def files(self) -> dict[str, int]:
        """Return the exact bytes of every file of the output, by name."""
        return self.layout.sizes(self.request)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the whole output."""
        return sum(self.files.values())

    @property
    def shortage(self) -> str | None:
        """Tell that there is no room for the output here; each share checks that of its own."""
        elsewhere = self.request.in_shares or self.request.destination is not None
        return None if elsewhere else shortage(self.request.output, self.nbytes)

    def hashed_sources(self) -> dict[str, dict[str, object]]:
        """Bytes and SHA-256 of every file that was read, by name.

        Of files with tensors the SHA-256 is None: they are read tensor by tensor, in another order.
        """
        copies = {path for path in self.read.values() if is_header_copy(path)}
        tensors = {*self.checkpoint.files, *copies}
        return {
            name: {
                "bytes": path.stat().st_size,
                "sha256": None if path in tensors else sha256(path),
            }
            for name, path in self.read.items()
        }

    @property
    def sources(self) -> tuple[Path, ...]:
        """Return the files that are read, which nothing may be written over."""
        return _sources(self.checkpoint, self.request)

    @property
    def maker(self) -> PayloadMaker:
        """Return what makes the tensors of the output."""
        request = self.request
        jobs = request.jobs or usable_cores()
        allow = request.allow_nonfinite
        return PayloadMaker(self.checkpoint, self.plan, self.quantized, jobs, allow)

    @property
    def quantized_elements(self) -> dict[Work, int]:
        """Count the elements of each encoding that tensors are quantized to."""
        counts: Counter[Work] = Counter()
        if self.request.quantize is not None:
            for spec, origin in self.tensors:
                if spec.encoding is not None:
                    counts[spec.encoding, self._is_weighed(origin)] += spec.size
        return dict(counts)

    def _is_weighed(self, origin: Origin) -> bool:
        """Return whether a tensor is quantized with importance."""
        chosen = self.quantized.types.get(getattr(origin, "name", ""))
        return chosen is not None and chosen.importance is not None


@dataclass
class Report:
    """The result of a conversion.

    Attributes:
        output: What was written.
        nbytes: Its bytes.
        warnings: What was odd about the data.
        rounded: Tensors whose values the recipe's operations rounded.
        sha256: The checksums of its files, where they were asked for.
        kept: The files that an earlier run had finished.
    """

    output: Path
    nbytes: int
    warnings: list[str] = field(default_factory=list)
    rounded: set[str] = field(default_factory=set)
    sha256: dict[str, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)


def prepare(request: Request) -> Conversion:
    """Plan a conversion from headers, and check all that can be checked before it is run."""
    request.check()
    with files_noted() as read:
        conversion = _prepared(request)
    files = (path for path in read if path.suffix != RECIPE_SUFFIX)
    conversion.read = named([*files, *conversion.checkpoint.seen], request.source)
    _check_free(conversion)
    return conversion


def _prepared(request: Request) -> Conversion:
    """The conversion, before it is known whether its files may be written."""
    adapter = _adapter(request)
    if adapter is None:
        checkpoint = open_checkpoint(request.source)
        request = _without_recipe(checkpoint, request)
    else:
        checkpoint, request = adapter.checkpoint, replace(request, base=adapter.base)
    if request.adapter is not None:
        checkpoint = merged(checkpoint, request.adapter)
    # Whether there are parts, which have names of their own, is not known yet.
    free = request.force or request.most_bytes is not None or request.sha256
    check_output(request.output, force=free, sources=_sources(checkpoint, request))
    _check_replaceable(request)
    planned = None if request.plain or adapter else _matched(checkpoint, request)
    checkpoint = planned.checkpoint if planned else checkpoint
    quantized = QuantizedTypes({}, [])
    if planned is None:
        checkpoint = with_dense(checkpoint)
        tensors, notes = copied_tensors(checkpoint, request)
    else:
        tensors, notes, quantized = planned_tensors(planned, request)
    tensors = edited(tensors, request.edits, allow_nonfinite=request.allow_nonfinite)
    specs = [spec for spec, _ in tensors]
    WRITERS[request.target].check(specs)
    if planned is not None:
        description = described(
            planned, specs, request, quantized, recast=_recast(tensors, quantized)
        )
    elif adapter is not None:
        description = adapter.description
    else:
        description = copied_description(checkpoint, specs, request)
    description = metadata_edits.apply(description, request.metadata, request.target)
    layout = laid_out(request, tensors, description.metadata, description.files)
    layout, removed = replacing_companions(layout, request, _sources(checkpoint, request))
    notes = [*checkpoint.notes, *(planned.notes if planned else ()), *notes, *description.notes]
    notes += removed
    notes += [ONE_FILE] if request.resume and len(layout.files) < 2 else []
    used = planned or adapter
    recipe = used.recipe if used else None
    return Conversion(request, checkpoint, planned, tensors, layout, notes, quantized, recipe)


def _adapter(request: Request) -> ConvertedAdapter | None:
    """The adapter that is the source, in the names of GGUF; None if it is another checkpoint."""
    if is_adapter(request.source) and not request.plain:
        request.check_adapter()
        return converted_adapter(request)
    if request.base is not None:
        what = "--base is for an adapter of peft as the source, and this is none"
        raise UsageError(what, file=request.source)
    return None


def _without_recipe(checkpoint: Checkpoint, request: Request) -> Request:
    """The request, plain where no recipe can read a source and the output is its tensors alone."""
    alone = request.target in {"safetensors", "npz"} and not request.needs_recipe
    if not alone or checkpoint.format in RECIPES_READ:
        return request
    return replace(request, plain=True)


def _recast(tensors: list[TensorSource], quantized: QuantizedTypes) -> bool:
    """Return whether tensors are written as other types than the ones chosen in quantizing."""
    chosen = quantized.types
    return any(
        (spec.encoding or spec.dtype) is not chosen[origin.name].type
        for spec, origin in tensors
        if isinstance(origin, OutputTensor) and origin.name in chosen
    )


def _matched(checkpoint: Checkpoint, request: Request) -> Plan:
    """The source, matched with its recipe, which must be able to say the target's dialect."""
    asked, target = request.recipe, DIALECT[request.target]
    recipe = load_recipe(asked) if asked else written_by(find_recipe(checkpoint), target)
    planned = plan(recipe, checkpoint, ignore=request.ignore)
    planned.check()
    if planned.dialect != target:
        written_keys(recipe, target, planned.config)
    return planned


def convert(
    conversion: Conversion,
    progress: Callable[[int], None] | None = None,
    shared: PartFolder | None = None,
) -> Report:
    """Run a planned conversion; ``progress`` is told the bytes written since the last call.

    Files with tensors are not written but taken from the folder ``shared``, where there is one.

    Raises:
        MachineLacks: If the disk has no room for the output; nothing is written then.
        MaxtoolError: If the source cannot be read, or the output cannot be written.
    """
    request, layout = conversion.request, conversion.layout
    if shared is None:
        check_space(request.output, conversion.nbytes)
    report = Report(request.output, conversion.nbytes)
    quick = accelerated(conversion.quantized_elements, report.warnings.append)
    recipe, seen = conversion.recipe, conversion.checkpoint.seen
    journal = None if shared else new_journal(request, layout, recipe, seen)
    with staged_layout(request, layout, journal) as folder, trusted(journal), quick:
        for file in layout.files:
            (folder / file.name).parent.mkdir(exist_ok=True)
            _finish(conversion, file, folder / file.name, report, shared or journal, progress)
        for name, data in layout.beside.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
            report.sha256[name] = hashlib.sha256(data).hexdigest()
            if progress is not None:
                progress(len(data))
        if request.verify:
            for file in layout.files:
                if shared is None or not shared.is_verified(file.name):
                    _read_back(conversion, file, folder / file.name)
        if layout.checksums:
            (folder / layout.checksums).write_bytes(checksum_lines(report.sha256))
        conversion.checkpoint.check_unchanged()
        _check_replaceable(request)  # it may hold other things by now
    if report.rounded:
        first, others = min(report.rounded), len(report.rounded) - 1
        named = f"{first} and of {others} others" if others else first
        what = "are rounded or left out by the recipe's operations"
        report.warnings.append(f"values of {named} {what}")
    return report


# --- planning ------------------------------------------------------------------------------------


def _sources(checkpoint: Checkpoint, request: Request) -> tuple[Path, ...]:
    """The files and folders that are read, which nothing may be written over."""
    others = [path for path in (request.adapter, request.base) if path is not None]
    return (*checkpoint.protected, *others, *files_read(request.quantize))


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


def _check_free(conversion: Conversion) -> None:
    """Check that the files of the output may be written."""
    request, replaced = conversion.request, conversion.layout.replaced
    if request.destination is not None:
        check_objects(request, conversion.layout)
        return
    sources = conversion.sources
    if replaced is None:
        check_output(request.output, force=request.force, sources=sources)
    else:
        check_parts(request.output, replaced, force=request.force, sources=sources)


# --- streaming -----------------------------------------------------------------------------------


def _finish(
    conversion: Conversion,
    file: TensorFile,
    path: Path,
    report: Report,
    journal: Journal | PartFolder | None,
    progress: Callable[[int], None] | None,
) -> None:
    """Write a file, unless an earlier run has finished it, or it is among the parts of others."""
    own = Report(report.output, 0)
    if isinstance(journal, PartFolder):
        kept: FinishedPart | None = journal.bring(file.name, path, progress).part
    else:
        kept = kept_part(journal, path, report.warnings.append, progress) if journal else None
    if kept is not None:
        report.kept.append(file.name)
        own.warnings += kept.remarks.get("warnings", ())
        own.rounded.update(kept.remarks.get("rounded", ()))
        digest: str | None = kept.sha256
    else:
        hashed = conversion.request.hashed or journal is not None
        digest = _write(conversion, file, path, own, progress, hashed=hashed)
        if isinstance(journal, Journal) and digest is not None:
            remarks = {"warnings": own.warnings, "rounded": sorted(own.rounded)}
            journal.add(path, digest, remarks)
    if conversion.request.hashed and digest is not None:
        report.sha256[file.name] = digest
    report.warnings += own.warnings
    report.rounded |= own.rounded


def _write(
    conversion: Conversion,
    file: TensorFile,
    path: Path,
    report: Report,
    progress: Callable[[int], None] | None,
    *,
    hashed: bool,
) -> str | None:
    """Write a file; returns its checksum if it is ``hashed``."""
    request, specs = conversion.request, [spec for spec, _ in file.tensors]
    digest = hashlib.sha256() if hashed else None
    warn, rounded = report.warnings.append, report.rounded.add
    with conversion.maker.payloads(file.tensors, warn, rounded) as arrays:
        WRITERS[request.target].write(path, specs, arrays, file.metadata, progress, digest)
    if request.target in SHARDED:
        verify_safetensors(path, specs, request.output)
    return None if digest is None else digest.hexdigest()


def write_part(
    conversion: Conversion,
    file: TensorFile,
    path: Path,
    progress: Callable[[int], None] | None = None,
) -> tuple[str, Report]:
    """Write one file of an output by itself: its SHA-256, and what is to be said about it.

    ``ChangedFile`` if the source was changed before all of it was written.
    """
    report = Report(path, 0)
    digest = _write(conversion, file, path, report, progress, hashed=True)
    if conversion.request.verify:
        _read_back(conversion, file, path)
    conversion.checkpoint.check_unchanged()
    return str(digest), report


def _read_back(conversion: Conversion, file: TensorFile, path: Path) -> None:
    """Compare a file that was written with the source, converted once more."""
    request = conversion.request
    with conversion.maker.payloads(file.tensors) as again:
        read_back(path, file, again, request.target, request.output)
