"""A compilation, carried out: the artifact appears whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from maxtool.artifact import check as parity
from maxtool.artifact import manifest, tokens, weights
from maxtool.artifact.build import Build, natural_dtype
from maxtool.compiler.linking import export_library
from maxtool.compiler.lowering.module import ModuleLowering
from maxtool.compiler.pipeline import compile_module
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.files import sha256, staged
from maxtool.weights import Checkpoint

Progress = Callable[[int], None]


@dataclass
class Report:
    """What a compilation did.

    Attributes:
        output: The artifact.
        nbytes: Its bytes.
        check: How far it is from its reference, if that was asked.
        seconds: CPU time of each stage.
    """

    output: Path
    nbytes: int
    check: parity.Checked | None
    seconds: dict[str, float] = field(default_factory=dict)


def make(made: Build, progress: Progress = lambda _done: None) -> Report:
    """Compile, and write the artifact.

    Args:
        made: What :func:`prepare` gave.
        progress: Told the bytes read, written or hashed since the last call.

    Raises:
        CompilationFailed: If the compiler gives up.
        ModelMismatch: If values do not fit the type they are to have.
        ParityFailed: If the outputs are not those of the reference; nothing is written then.
    """
    clock = _Clock()
    with staged(made.request.output, folder=True) as folder:
        executable = _compile(made, clock)
        export_library(executable, folder / manifest.MODULE, made.target)
        clock.lap("link")
        digest = _write_weights(made, folder, progress)
        clock.lap("weights")
        described: dict[str, Any] = manifest.describe(
            made.module,
            made.graphs,
            weights.place(made.storage.values())[0],
            {
                "name": _name(made.plan.checkpoint),
                "recipe": made.plan.recipe.name,
                "architecture": made.plan.recipe.architecture,
                "dtype": made.dtype.value,
                "target": made.target.manifest,
                "tokenizer": tokens.write(made.tokenizer, folder) if made.tokenizer else None,
                "sources": _hashed(made.sources, progress),
            },
        )
        _copy_loader(made, folder)
        described["files"] = _files(folder, {weights.FILE: digest})
        _save(folder, described)
        clock.lap("files")
        found = _check(made, folder) if made.request.check else None
        if found is not None:
            described["check"] = manifest.checked(found)
            known = {name: file["sha256"] for name, file in described["files"].items()}
            described["files"] = _files(folder, known)
            _save(folder, described)
            clock.lap("check")
        nbytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return Report(made.request.output, nbytes, found, clock.seconds)


def _compile(made: Build, clock: _Clock) -> Any:  # noqa: ANN401 - tvm ships no types
    lowering = ModuleLowering(made.target, made.storage)
    for graph in made.graphs.values():
        lowering.entry(graph)
    clock.lap("lower")
    executable = compile_module(lowering.module(), made.target, asserts=False)
    clock.lap("compile")
    return executable


def _write_weights(made: Build, folder: Path, progress: Progress) -> str:
    derived = {
        weight.name: weight
        for graph in made.graphs.values()
        for weight in graph.owners.values()
        if weight.is_bound
    }

    def read(name: str) -> np.ndarray[Any, Any]:
        if name in derived:
            return derived[name].to_numpy()
        return made.plan.read(name).astype(made.storage[name].dtype).data

    placed, _ = weights.place(made.storage.values())
    return weights.write(folder / weights.FILE, placed, read, progress)


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
        manifest.copy_runtime(folder)


def _hashed(paths: list[Path], progress: Progress) -> dict[str, dict[str, object]]:
    return {
        path.name: {"bytes": path.stat().st_size, "sha256": sha256(path, progress)}
        for path in paths
    }


def _files(folder: Path, known: dict[str, str]) -> dict[str, dict[str, object]]:
    """Bytes and SHA-256 of every file of the artifact, by its path in the folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    named = {file.relative_to(folder).as_posix(): file for file in files}
    named.pop(manifest.FILE, None)  # it cannot hold its own
    return {
        name: {"bytes": file.stat().st_size, "sha256": known.get(name) or sha256(file)}
        for name, file in named.items()
    }


def _save(folder: Path, described: dict[str, object]) -> None:
    text = json.dumps(described, indent=1, allow_nan=False)
    (folder / manifest.FILE).write_text(text + "\n", encoding="utf-8")


def _name(checkpoint: Checkpoint) -> str:
    path = checkpoint.path.resolve()
    return path.name if path.is_dir() else path.stem


class _Clock:
    """CPU seconds of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = process_time()

    def lap(self, stage: str) -> None:
        now = process_time()
        self.seconds[stage] = now - self._last
        self._last = now
