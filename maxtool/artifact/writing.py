"""A compilation, carried out: the artifact appears whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from maxtool.artifact import check as parity
from maxtool.artifact import code, devices, manifest, replaceable, tokens, weights
from maxtool.artifact.build import Build, natural_dtype
from maxtool.artifact.code import Kernels
from maxtool.artifact.progress import Clock, Progress, Silent
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.files import sha256, staged
from maxtool.recipe.naming import model_name
from maxtool.weights.formats.artifact import FILE


@dataclass
class Report:
    """What a compilation did.

    Attributes:
        output: The artifact.
        nbytes: Its bytes.
        check: How far it is from its reference, if that was asked.
        kernels: For GPUs what each kernel takes, by architecture.
        seconds: CPU time of each stage.
    """

    output: Path
    nbytes: int
    check: parity.Checked | None
    kernels: Kernels
    seconds: dict[str, float] = field(default_factory=dict)


def make(made: Build, progress: Progress = Silent()) -> Report:  # noqa: B008 - it has no state
    """Compile, and write the artifact.

    Args:
        made: What :func:`prepare` gave.
        progress: Told each stage, and the bytes that are read, written or hashed.

    Raises:
        CompilationFailed: If the compiler gives up.
        ModelMismatch: If values do not fit the type they are to have.
        ParityFailed: If the outputs are not those of the reference; nothing is written then.
    """
    clock = Clock()
    request = made.request
    progress.steps(code.stages(made.target) + (3 if request.check else 2))
    with staged(request.output, folder=True, replace=request.force) as folder:
        graphs = made.graphs.values()
        kernels = code.write(graphs, made.storage, made.target, folder, clock, progress)
        progress.stage("writing weights", made.weight_bytes)
        digests = _write_weights(made, folder, progress)
        clock.lap("weights")
        described = _described(made, folder, kernels, progress)
        _copy_loader(made, folder)
        described["files"] = _files(folder, digests)
        manifest.save(folder, described)
        clock.lap("files")
        found = None
        if request.check:
            progress.stage("checking against the reference")
            found = _checked(made, folder, described)
            clock.lap("check")
        nbytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        made.plan.checkpoint.check_unchanged()
        replaceable.check(request.output)  # it may hold other things by now
    return Report(request.output, nbytes, found, kernels, clock.seconds)


def _described(made: Build, folder: Path, kernels: Kernels, progress: Progress) -> dict[str, Any]:
    """The manifest, but for files and check; the tokenizer is written on the way."""
    facts = {
        "name": made.request.name or model_name(made.plan),
        "recipe": made.plan.recipe.name,
        "architecture": made.plan.recipe.architecture,
        "dtype": made.dtype.value,
        "target": made.target.manifest,
        **({"devices": made.request.devices} if made.request.devices > 1 else {}),
        **({"kernels": code.described(kernels)} if kernels else {}),
        "tokenizer": tokens.write(made.tokenizer, folder) if made.tokenizer else None,
        "sources": _hashed(made.sources, progress),
    }
    placed, _ = weights.place(made.storage.values())
    return manifest.describe(made.module, made.graphs, placed, facts)


def _checked(made: Build, folder: Path, described: dict[str, Any]) -> parity.Checked:
    """Check the artifact, and add to its manifest what was found."""
    found = _check(made, folder)
    described["check"] = manifest.checked(found)
    known = {name: file["sha256"] for name, file in described["files"].items()}
    described["files"] = _files(folder, known)
    manifest.save(folder, described)
    return found


def _write_weights(made: Build, folder: Path, progress: Progress) -> dict[str, str]:
    """Write the weights of each device; the SHA-256 of each file."""
    derived = {
        weight.name: weight
        for graph in made.graphs.values()
        for weight in graph.owners.values()
        if weight.is_bound
    }
    split = devices.parts(made.graphs.values())
    placed, _ = weights.place(made.storage.values())

    def write(rank: int, name: str) -> str:
        def read(name: str) -> np.ndarray[Any, Any]:
            if name in derived:
                return derived[name].to_numpy()
            whole = made.plan.read(name).astype(made.storage[name].dtype)
            return devices.cut(whole, split.get(name), rank).data

        return weights.write(folder / name, placed, read, progress)

    return {
        name: write(rank, name) for rank, name in enumerate(weights.files(made.request.devices))
    }


def _check(made: Build, folder: Path) -> parity.Checked:
    """Compare with the reference, or record what it gives for the machine that this is for.

    The tolerance is that of float32 unless values were rounded: weights from a wider type, or on a
    GPU what they are multiplied with.
    """
    narrower = made.dtype is not natural_dtype(made.plan) or made.target.kind == "cuda"
    rounded = narrower and made.dtype is not DType.float32
    name = made.dtype.value if rounded else DType.float32.value
    tolerance = made.plan.recipe.check.get(name)
    if tolerance is None:
        raise ConfigurationError(
            f"the recipe has no tolerance for {name}", file=made.plan.recipe.file
        )
    compare = parity.check if made.target.host else parity.record
    return compare(folder, made.plan.checkpoint, tolerance)


def _copy_loader(made: Build, folder: Path) -> None:
    manifest.copy_loader(folder)
    if made.request.standalone:
        manifest.copy_runtime(folder, made.target.kind)


def _hashed(paths: list[Path], progress: Progress) -> dict[str, dict[str, object]]:
    sizes = {path: path.stat().st_size for path in paths}
    progress.stage("hashing the source", sum(sizes.values()))
    return {
        path.name: {"bytes": size, "sha256": sha256(path, progress)} for path, size in sizes.items()
    }


def _files(folder: Path, known: dict[str, str]) -> dict[str, dict[str, object]]:
    """Bytes and SHA-256 of every file of the artifact, by its path in the folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    named = {file.relative_to(folder).as_posix(): file for file in files}
    named.pop(FILE, None)  # it cannot hold its own
    return {
        name: {"bytes": file.stat().st_size, "sha256": known.get(name) or sha256(file)}
        for name, file in named.items()
    }
