"""A compilation, carried out: the artifact appears whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from maxtool.artifact import (
    build_record,
    machine_code,
    manifest,
    replaceable,
    tokenizer_files,
    weights,
)
from maxtool.artifact.beside import Beside
from maxtool.artifact.check import PassedCheck
from maxtool.artifact.contents import Contents
from maxtool.artifact.machine_code import Kernels
from maxtool.artifact.planned import Planned
from maxtool.artifact.progress import Progress, SilentProgress, StageClock
from maxtool.files import sha256, staged
from maxtool.weights.formats.artifact import FILE


@dataclass
class Report:
    """The result of a compilation."""

    output: Path  # the artifact
    nbytes: int  # of all its files
    check: PassedCheck | None  # how far it is from its reference, if that was asked
    kernels: Kernels  # for GPUs what each kernel takes, by architecture
    seconds: dict[str, float] = field(default_factory=dict)  # CPU time of each stage


def make(planned: Planned, progress: Progress = SilentProgress()) -> Report:  # noqa: B008 - it has no state
    """Compile, write and check the artifact; there is none where one of these fails.

    Raises:
        MachineLacks: If the disk has no room for it; nothing is compiled then.
        MaxtoolError: If it cannot be written, or fails its check.
    """
    clock = StageClock()
    request, contents = planned.request, planned.contents
    planned.check_space()
    progress.steps(machine_code.stages(contents.target) + (3 if request.check else 2))
    placed = staged(request.output, folder=True, replace=request.force)
    with placed as folder, planned.quick_reading():
        kernels, digests, sources = _computed(contents, folder, clock, progress)
        described = _described(contents, folder, kernels)
        described["build"] = build_record.described(request, contents, sources)
        manifest.copy_loader(folder)
        if request.standalone:
            manifest.copy_runtime(folder, contents.target.kind)
        described["files"] = _files(folder, digests)
        manifest.save(folder, described)
        clock.lap("files")
        checked = None
        if request.check:
            progress.stage("checking against the reference")
            checked = _checked(planned, folder, described)
            clock.lap("check")
        nbytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        planned.check_unchanged()
        replaceable.check(request.output)  # it may hold other things by now
    return Report(request.output, nbytes, checked, kernels, clock.seconds)


def _computed(
    contents: Contents, folder: Path, clock: StageClock, progress: Progress
) -> tuple[Kernels, dict[str, str], dict[str, object]]:
    """Write code and weights; what kernels take, checksums of the weights, and what was read.

    Code is generated in one thread, weights are written in another, which also hashes the source.
    """
    sizes = [path.stat().st_size for path in contents.sources.values()]
    total = weights.total_bytes(contents)
    with Beside() as beside:
        written = beside.begin(partial(weights.write_all, contents, folder))
        hashed = beside.begin(partial(build_record.hashed, contents.sources))
        kernels = machine_code.write(contents, folder, clock, progress)
        progress.stage("writing weights", total)
        digests = written.result(progress)
        progress.stage("hashing the source", sum(sizes))
        sources = hashed.result(progress)
    clock.joined("weights")
    return kernels, digests, {**sources, **build_record.hashed_text(contents.executed)}


def _described(contents: Contents, folder: Path, kernels: Kernels) -> dict[str, Any]:
    """The manifest, but for files and check; the tokenizer is written on the way."""
    tokenizer = contents.tokenizer
    facts = {
        **({"kernels": machine_code.described(kernels)} if kernels else {}),
        "tokenizer": tokenizer_files.write(tokenizer, folder) if tokenizer else None,
    }
    return manifest.describe(contents, facts)


def _checked(planned: Planned, folder: Path, described: dict[str, Any]) -> PassedCheck:
    """Check the artifact, and add to its manifest what was found."""
    checked = planned.compare(folder)
    described["check"] = manifest.checked(checked)
    known = {name: file["sha256"] for name, file in described["files"].items()}
    described["files"] = _files(folder, known)
    manifest.save(folder, described)
    return checked


def _files(folder: Path, known: dict[str, str]) -> dict[str, dict[str, object]]:
    """Bytes and SHA-256 of every file of the artifact, by its path in the folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    named = {file.relative_to(folder).as_posix(): file for file in files}
    named.pop(FILE, None)  # it cannot hold its own
    return {
        name: {"bytes": file.stat().st_size, "sha256": known.get(name) or sha256(file)}
        for name, file in named.items()
    }
