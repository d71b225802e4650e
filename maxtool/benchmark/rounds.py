"""Rounds of a benchmark: artifacts take turns, each in a new process, and so does the machine."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from maxtool.benchmark.cases import TASKS, Settings, cases_of
from maxtool.benchmark.processes import Process, started
from maxtool.benchmark.results import (
    Benchmark,
    Benchmarked,
    KernelShare,
    Machine,
    Measured,
    Profile,
)
from maxtool.benchmark.samples import Samples
from maxtool.errors import translated
from maxtool.runtime.loader.errors import RunError
from maxtool.runtime.loader.manifest import Manifest

ARTIFACT, MACHINE = "maxtool.benchmark.artifact_worker", "maxtool.benchmark.machine_worker"
# Tokens of the prompt whose first token is waited for.
FIRST = 16
# Seconds of a turn: of a model, and of each of the machine's kernels. The speed of a shared machine
# changes within a second.
TURN, PEAK = 0.4, 0.05
CPU_INFO = Path("/proc/cpuinfo")


def run(
    folders: Sequence[Path], settings: Settings, told: Callable[[str], None] = lambda _what: None
) -> Benchmark:
    """Measure artifacts.

    Args:
        folders: Those of the artifacts.
        settings: What is measured, and how often.
        told: Called with what is done next.

    Raises:
        MaxtoolError: If an artifact cannot be read or run, or has no room for what is asked.
    """
    artifacts = [_planned(folder, settings) for folder in folders]
    told("compiling the kernels that measure this machine")
    with started(MACHINE, threads=settings.threads) as beside:
        about = beside.ask("describe")
        machine = Machine(processor_name(), **about)
        for number in range(1, settings.rounds + 1):
            for artifact in artifacts:
                told(f"round {number} of {settings.rounds}: {artifact.folder}")
                _round(artifact, Turns(machine, beside), settings)
    for artifact in artifacts if settings.profile else ():
        told(f"timing kernels: {artifact.folder}")
        for measured in artifact.cases:
            measured.profile = _profile(artifact, measured, settings)
    return Benchmark(machine, artifacts)


def _planned(folder: Path, settings: Settings) -> Benchmarked:
    """An artifact, and what will be measured of it."""
    try:
        manifest = Manifest(folder)
    except RunError as error:
        raise translated(error) from None
    return Benchmarked(folder, manifest, [Measured(case) for case in cases_of(manifest, settings)])


@dataclass(frozen=True)
class Turns:
    """The machine's turns between those of a model."""

    machine: Machine
    process: Process

    def take(self, peak: str) -> tuple[float, float]:
        """Measure the machine: bytes, and operations of the type ``peak``, a second."""
        answer = self.process.ask("turn", seconds=PEAK)
        self.machine.read.add(answer["read"])
        for name, samples in self.machine.peaks.items():
            samples.add(answer[name])
        return answer["read"], answer[peak]


def _round(artifact: Benchmarked, turns: Turns, settings: Settings) -> None:
    """Load an artifact in a process of its own, and measure each of its cases once."""
    began = time.perf_counter()
    folder = str(artifact.folder.absolute())
    with started(ARTIFACT, folder, threads=settings.threads) as process:
        loaded = process.ask("load")
        artifact.load.add(time.perf_counter() - began - process.rested)
        artifact.checksums.add(loaded["checksums"])
        artifact.threads.add(loaded["threads"])
        if artifact.manifest.task in TASKS:
            length = min(FIRST, artifact.manifest.context or FIRST)
            artifact.first.add(process.ask("first", length=length)["seconds"])
        for measured in artifact.cases:
            _measure(measured, process, turns)
        _remember(artifact, process.ask("memory"))


def _profile(artifact: Benchmarked, measured: Measured, settings: Settings) -> Profile:
    """Time the kernels of a case: what else a step takes, as it was measured, is between them."""
    with started(ARTIFACT, str(artifact.folder.absolute()), threads=settings.threads) as process:
        process.ask("load")
        process.ask("begin", **measured.case.order)
        answer = process.ask("profile", seconds=TURN)
    kernels = [KernelShare.of(kernel, answer["steps"]) for kernel in answer["kernels"]]
    whole = measured.case.step_units / measured.rate.median
    return Profile(kernels, max(0.0, whole - sum(kernel.seconds for kernel in kernels)))


def _measure(measured: Measured, process: Process, turns: Turns) -> None:
    """Measure a case, the machine before and after each turn."""
    case = measured.case
    process.ask("begin", **case.order)
    peaks, done, seconds = [turns.take(case.peak)], 0, 0.0
    while done < case.units:
        answer = process.ask("turn", seconds=TURN)
        done, seconds = done + answer["units"], seconds + answer["seconds"]
        peaks.append(turns.take(case.peak))
    read, peak = (mean(values) for values in zip(*peaks, strict=True))
    measured.add(done / seconds, read, peak)


def _remember(artifact: Benchmarked, memory: dict[str, Any]) -> None:
    for name, size in memory.items():
        artifact.memory.setdefault(name, Samples()).add(size)


def processor_name() -> str:
    """The processor as the system calls it."""
    try:
        lines = CPU_INFO.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
