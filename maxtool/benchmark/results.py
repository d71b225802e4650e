"""Results of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from maxtool.benchmark.cases import PEAKS, Case
from maxtool.benchmark.samples import Samples
from maxtool.runtime.loader.manifest import Manifest


@dataclass(frozen=True)
class Machine:
    """Processor of this machine, and what it reached in turns with the models."""

    name: str  # as the system calls it
    target: Mapping[str, object]  # what kernels are compiled for here, with its instruction sets
    threads: int
    read_bytes: int  # in one pass
    read: Samples = field(default_factory=Samples)  # bytes a second
    # Operations a second, by the type of what is multiplied.
    peaks: Mapping[str, Samples] = field(default_factory=lambda: {one: Samples() for one in PEAKS})

    @property
    def as_json(self) -> dict[str, object]:
        """The machine for ``--json``."""
        facts = ("name", "target", "threads", "read_bytes")
        peaks = {name: samples.as_json for name, samples in self.peaks.items()}
        told = {fact: getattr(self, fact) for fact in facts}
        return {**told, "read": self.read.as_json, "peaks": peaks}


@dataclass(frozen=True)
class Profile:
    """Kernels of a step: a prompt, a token, a batch or a call; those that took most time first."""

    kernels: Sequence[KernelShare]
    between: float  # seconds of a step that no kernel took

    @property
    def seconds(self) -> float:
        """Time of a step."""
        return self.between + sum(kernel.seconds for kernel in self.kernels)

    @property
    def as_json(self) -> dict[str, object]:
        """The profile for ``--json``."""
        kernels = [asdict(kernel) for kernel in self.kernels]
        return {"seconds": self.seconds, "between_kernels": self.between, "kernels": kernels}


@dataclass(frozen=True)
class KernelShare:
    """A kernel with the same weights of all layers, in one step."""

    kernel: str
    weights: str  # names, with a star for the number of a layer; nothing where it has none
    calls: float
    seconds: float
    bytes: float  # of the weights that it reads whole

    @classmethod
    def of(cls, answer: Mapping[str, Any], steps: int) -> KernelShare:
        """The kernel as a process told of it, for one of some steps."""
        figures = (answer[figure] / steps for figure in ("calls", "seconds", "bytes"))
        return cls(answer["kernel"], answer["weights"], *figures)


@dataclass
class Measured:
    """A case, and what came out in each round."""

    case: Case
    rate: Samples = field(default_factory=Samples)  # units a second
    of_read: Samples = field(default_factory=Samples)  # share of the read bandwidth, from 0 to 1
    of_peak: Samples = field(default_factory=Samples)  # share of the arithmetic peak
    profile: Profile | None = None

    def add(self, rate: float, read: float, peak: float) -> None:
        """Enter a round: units a second, and the machine's own figures beside them."""
        self.rate.add(rate)
        work = self.case.work
        if work is not None:
            self.of_read.add(rate * work.bytes / read)
            if work.operations is not None:
                self.of_peak.add(rate * work.operations / peak)

    @property
    def as_json(self) -> dict[str, object]:
        """The case and its figures for ``--json``."""
        work = self.case.work
        return {
            "case": self.case.step,
            "entry": self.case.entry or self.case.step,
            "sizes": dict(self.case.sizes),
            "unit": self.case.unit,
            "per_second": self.rate.as_json,
            "peak": self.case.peak,
            "bytes_per_unit": work and work.bytes,
            "operations_per_unit": work and work.operations,
            "share_of_read": self.of_read.as_json if self.of_read.values else None,
            "share_of_peak": self.of_peak.as_json if self.of_peak.values else None,
            **({} if self.profile is None else {"profile": self.profile.as_json}),
        }


@dataclass(frozen=True)
class Benchmarked:
    """One artifact, and all that was measured of it."""

    folder: Path
    manifest: Manifest
    cases: Sequence[Measured]
    load: Samples = field(default_factory=Samples)  # seconds, from the start of a process
    checksums: Samples = field(default_factory=Samples)  # of those, the checking of files
    first: Samples = field(default_factory=Samples)  # seconds to the first token, or vector
    memory: dict[str, Samples] = field(default_factory=dict)  # bytes, by what they are
    threads: Samples = field(default_factory=Samples)

    @property
    def encodings(self) -> list[str]:
        """Encodings of its quantized weights."""
        return sorted({spec.encoding for spec in self.manifest.weights if spec.encoding})

    @property
    def target(self) -> Mapping[str, object]:
        """Target that it is compiled for."""
        return self.manifest.target

    @property
    def as_json(self) -> dict[str, object]:
        """The artifact for ``--json``."""
        root = self.manifest.root
        facts = {key: root.get(key) for key in ("name", "recipe", "task", "dtype", "context")}
        facts["encodings"] = self.encodings
        samples = {"load": self.load, "checksums": self.checksums, "first": self.first}
        timed = {f"{name}_seconds": s.as_json for name, s in samples.items() if s.values}
        return {
            "folder": str(self.folder),
            **facts,
            "target": self.target,
            "threads": int(self.threads.median),
            **timed,
            "memory_bytes": {name: samples.as_json for name, samples in self.memory.items()},
            "cases": [measured.as_json for measured in self.cases],
        }


@dataclass(frozen=True)
class Benchmark:
    """Results for the machine and for each artifact."""

    machine: Machine
    artifacts: Sequence[Benchmarked]

    @property
    def as_json(self) -> dict[str, object]:
        """All results for ``--json``."""
        artifacts = [artifact.as_json for artifact in self.artifacts]
        return {"machine": self.machine.as_json, "artifacts": artifacts}
