"""The code of an artifact: a library for the host, and for GPUs machine code beside it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TypeAlias

from maxtool.artifact.contents import Contents
from maxtool.artifact.manifest import MODULE
from maxtool.artifact.progress import Progress, StageClock
from maxtool.compiler.cuda.binaries import device_code
from maxtool.compiler.cuda.cuda_target import CudaTarget
from maxtool.compiler.cuda.resources import Resources, read_resources
from maxtool.compiler.cuda.wheels import compilers
from maxtool.compiler.linking import export_library, find_linker
from maxtool.compiler.lowering.module_lowering import ModuleLowering
from maxtool.compiler.pipeline import compile_module
from maxtool.compiler.targets import Target

# By architecture, then by the name of the kernel.
Kernels: TypeAlias = dict[str, dict[str, Resources]]


def described(kernels: Kernels) -> dict[str, dict[str, dict[str, int]]]:
    """The same as JSON has it."""
    return {
        arch: {name: asdict(resources) for name, resources in by_name.items()}
        for arch, by_name in kernels.items()
    }


def require_tools(target: Target) -> None:
    """Check that what compiles and links for a target is here; an error says what to install."""
    find_linker(target.processor)
    if isinstance(target, CudaTarget):
        compilers()


def stages(target: Target) -> int:
    """Return the number of stages that :func:`write` reports."""
    return 4 if isinstance(target, CudaTarget) else 3


def write(contents: Contents, folder: Path, clock: StageClock, progress: Progress) -> Kernels:
    """Compile the functions into a folder; returns what each kernel takes, by GPU architecture."""
    target, functions = contents.target, contents.functions
    named = ", ".join(function.name for function in functions)
    progress.stage(f"lowering {named}")
    lowering = ModuleLowering(contents.lowering)
    for function in functions:
        lowering.entry(function.graph, function.symbol, function.usual)
    clock.lap("lower")
    progress.stage(f"compiling {named}")
    compiled = compile_module(lowering.module(), target, asserts=False)
    clock.lap("compile")
    progress.stage("generating machine code")
    export_library(compiled.executable, folder / MODULE, target.processor)
    clock.lap("link")
    if not isinstance(target, CudaTarget):
        return {}
    progress.stage(f"compiling for {target.label}")
    codes = device_code(compiled, target)
    for code in codes:
        (folder / code.file).write_bytes(code.data)
    clock.lap("device code")
    return {code.name: read_resources(code.log) for code in codes if code.is_machine}
