"""A compilation: planned from headers, then carried out, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from maxtool.architectures import Architecture, CacheForm, Entry, build
from maxtool.artifact import check as parity
from maxtool.artifact import manifest, tokens, weights
from maxtool.artifact.request import DTYPES, Request
from maxtool.compiler.linking import export_library, find_linker
from maxtool.compiler.lowering.module import ModuleLowering
from maxtool.compiler.pipeline import compile_module
from maxtool.compiler.storage import Storage, plan_storage
from maxtool.compiler.target import CpuTarget, cpu_target
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError, OutputExists, UsageError
from maxtool.files import check_output, check_space, sha256, staged
from maxtool.graph import Graph
from maxtool.parity.references import reference
from maxtool.recipe import Plan, find_recipe, load_recipe, plan
from maxtool.tokenizer import Tokenizer
from maxtool.weights import Checkpoint, open_checkpoint

# What else an artifact takes, beside its weights: code, manifest, tokenizer.
SPARE_BYTES = 16 << 20

Progress = Callable[[int], None]

# How the kernels of each kind of target read a cache, by the type of the matrices.
CACHE_FORMS: dict[str, Callable[[DType], CacheForm]] = {
    "cpu": lambda _: CacheForm(),
    "cuda": lambda dtype: CacheForm(dtype, transposed=False),
}


@dataclass
class Build:
    """A compilation that has been planned, and fits.

    Attributes:
        request: What was asked.
        plan: The source, matched with its recipe.
        target: What it is compiled for.
        dtype: Element type of the matrices.
        module: The architecture, its weights declared.
        graphs: The functions of the artifact, traced.
        storage: How each weight is stored, in the order of the file.
        tokenizer: What came with the source.
        notes: What is worth knowing before it is run.
    """

    request: Request
    plan: Plan
    target: CpuTarget
    dtype: DType
    module: Architecture
    graphs: dict[Entry, Graph]
    storage: dict[str, Storage]
    tokenizer: Tokenizer | None
    notes: list[str]

    @property
    def work(self) -> int:
        """Bytes to read, write and hash: what progress counts."""
        return self.weight_bytes + sum(path.stat().st_size for path in self.sources)

    @property
    def weight_bytes(self) -> int:
        """The size of the weights file."""
        return weights.place(self.storage.values())[1]

    @property
    def sources(self) -> list[Path]:
        """The files that were read: tensors and configuration."""
        config = self.plan.checkpoint.config_file
        return [*self.plan.checkpoint.files, *([config] if config else [])]


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


def prepare(request: Request) -> Build:
    """Plan a compilation from headers, and check all that can be checked before it is run.

    Raises:
        UsageError: If the request contradicts itself, or the output is in the way.
        InputError: If the source cannot be read.
        ModelMismatch: If no recipe recognises the source, it does not fit its recipe, or it is to
            be checked and nothing computes its reference.
        MachineLacks: If the disk has no room for the artifact, or nothing can link it.
    """
    target = cpu_target(request.target)
    checkpoint = open_checkpoint(request.source)
    check_output(request.output, force=request.force, sources=checkpoint.protected)
    _check_replaceable(request.output)
    recipe = load_recipe(request.recipe) if request.recipe else find_recipe(checkpoint)
    planned = plan(recipe, checkpoint, ignore=request.ignore)
    planned.check()
    if request.check:
        # Minutes of compilation later would be a bad time to hear that there is none.
        reference(checkpoint)
    dtype = request.dtype or natural_dtype(planned)
    module = _module(request, planned, dtype, CACHE_FORMS[target.kind](dtype))
    graphs = {
        entry: module.trace(entry.name, entry.types, entry.function)
        for entry in module.entries()
        if entry.name in recipe.entries
    }
    made = Build(
        request=request,
        plan=planned,
        target=target,
        dtype=dtype,
        module=module,
        graphs=graphs,
        storage=plan_storage(graphs.values(), target),
        tokenizer=tokens.find(checkpoint),
        notes=[*checkpoint.notes, *planned.notes],
    )
    if made.tokenizer is None:
        made.notes.append("the source has no tokenizer: the artifact takes token ids, not text")
    find_linker(target)
    check_space(request.output, made.weight_bytes + SPARE_BYTES)
    return made


def natural_dtype(planned: Plan) -> DType:
    """The type that stores the matrices without loss: theirs if all agree, else float32."""
    matrices = [binding for binding in planned.parameters.values() if len(binding.shape) > 1]
    plain = {binding.dtype for binding in matrices if binding.encoding is None}
    quantized = any(source.encoding for binding in matrices for source in binding.sources)
    agreed = next(iter(plain)) if len(plain) == 1 and not quantized else DType.float32
    return agreed if agreed in DTYPES else DType.float32


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


def _module(request: Request, planned: Plan, dtype: DType, form: CacheForm) -> Architecture:
    """The architecture, for as many positions as were asked for, or as many as it can have."""
    config = {**planned.config, **_chosen(request, planned)}
    make_one = partial(build, planned.recipe.architecture, config, dtype, form=form)
    usual = make_one()
    if request.context is None:
        return usual
    if usual.context is None:
        raise UsageError(f"--context is for models of sequences, not {planned.recipe.name}")
    # An encoder's own context may be where its texts are cut, which is less than it can have.
    largest = max(usual.context, planned.config.get("context_length", 1))
    if not 1 <= request.context <= largest:
        raise UsageError(f"--context {request.context} is not from 1 to {largest}")
    return make_one(request.context)


def _chosen(request: Request, planned: Plan) -> dict[str, object]:
    """The fields of the configuration that were asked for."""
    asked: dict[str, object] = {"pooling": request.pooling, "normalize": request.normalize}
    chosen = {name: value for name, value in asked.items() if value is not None}
    if unknown := [name for name in chosen if name not in planned.recipe.fields]:
        raise UsageError(f"--{unknown[0]} is for encoders, not {planned.recipe.name}")
    return chosen


def _check_replaceable(output: Path) -> None:
    """Let --force replace an artifact, never a folder of other things."""
    if not output.exists() or manifest.is_artifact(output):
        return
    if not output.is_dir() or any(output.iterdir()):
        raise OutputExists(
            "the output is not an artifact, and is not replaced",
            file=output,
            hint="choose another --output, or remove it yourself",
        )


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
