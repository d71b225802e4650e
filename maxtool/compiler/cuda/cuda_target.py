"""CUDA targets: the architectures that one artifact holds machine code for."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, ClassVar

import tvm

from maxtool.compiler.cpu_target import CpuTarget, cpu_target
from maxtool.dtype import DType
from maxtool.errors import MissingDevice, UsageError
from maxtool.graph.gpus import compute_capabilities

KIB = 1 << 10

# Shared memory that one block may have, by architecture: the table of technical specifications per
# compute capability in the CUDA C++ programming guide.
SHARED_MEMORY = {
    "sm_80": 163 * KIB,
    "sm_86": 99 * KIB,
    "sm_89": 99 * KIB,
    "sm_90": 227 * KIB,
    "sm_100": 227 * KIB,
    "sm_120": 99 * KIB,
}
THREADS_PER_BLOCK = 1024
WARP = 32

# A part of systems on a chip does not run the machine code of other GPUs of its generation.
ON_A_CHIP = {(8, 7)}

# The host's part only launches kernels: it is compiled for what every machine of its kind has, so
# that an artifact goes from where it was built to where the GPU is.
BASELINES = {"x86_64": "cpu:x86-64", "amd64": "cpu:x86-64", "aarch64": "cpu:aarch64-linux-gnu"}


@dataclass(frozen=True, slots=True)
class CudaTarget:
    """GPUs to compile for, and the machine that they are in."""

    # The architectures with machine code in the artifact, oldest first: ``sm_80``, ...
    archs: tuple[str, ...]
    # Whether PTX of the oldest of them goes in too, which drivers translate for other GPUs.
    ptx: bool
    processor: CpuTarget  # the CPU that launches the kernels
    host: bool  # whether the GPUs are those of this machine
    kind: ClassVar[str] = "cuda"
    packing: ClassVar[None] = None

    def terms(self, dtype: DType) -> int:  # noqa: ARG002 - as a CPU's
        """Return 1: no weight is packed."""
        return 1

    @property
    def label(self) -> str:
        """Name in messages: the architectures."""
        return ", ".join(self.archs)

    @property
    def shared_memory(self) -> int:
        """Bytes of shared memory that a block may have on each of the architectures."""
        return min(SHARED_MEMORY[arch] for arch in self.archs)

    @property
    def tvm(self) -> Any:  # noqa: ANN401 - tvm ships no types
        """The ``tvm.target.Target``: the oldest architecture, which the others include."""
        return tvm.target.Target(
            {
                "kind": "cuda",
                "arch": self.archs[0],
                "max_threads_per_block": THREADS_PER_BLOCK,
                "thread_warp_size": WARP,
                "max_shared_memory_per_block": self.shared_memory,
                "host": self.processor.tvm.export(),
            }
        )

    @property
    def manifest(self) -> dict[str, object]:
        """Return the record of an artifact: kind, architectures, whether there is PTX, and the CPU.

        ``shared_memory`` is what a block may take: a GPU that gives it less does not run the
        kernels, though it may run the machine code.
        """
        return {
            "kind": self.kind,
            "archs": list(self.archs),
            "ptx": self.ptx,
            "shared_memory": self.shared_memory,
            "host": self.processor.manifest,
        }


def cuda_target(name: str = "cuda", *, ptx: bool = False) -> CudaTarget:
    """The target a user names.

    That is ``cuda`` for the GPUs of this machine, or architectures: ``cuda:sm_80,sm_90``. A CPU
    among them (``cpu:aarch64-linux-gnu``) is the one of the machine that the GPUs are in; otherwise
    it is this machine's kind.
    """
    target_kind, colon, listed = name.partition(":")
    if target_kind != "cuda" or (colon and not listed):
        hint = "give cuda for the GPU here, or cuda:sm_XX such as cuda:sm_90"
        raise UsageError(f"no target {name!r}", hint=hint)
    if not colon:
        archs = _ordered(map(_arch_of, _capabilities_here()))
        return CudaTarget(archs, ptx, cpu_target().without_tiles(), host=True)
    parts = [part.strip() for part in listed.split(",")]
    cpus = [part for part in parts if part.startswith("cpu:")]
    if len(cpus) > 1:
        raise UsageError(f"{name!r} names several CPUs: the GPUs of an artifact are in one machine")
    archs = _known([part for part in parts if part not in cpus])
    processor = cpus[0] if cpus else BASELINES.get(platform.machine().lower(), "cpu")
    return CudaTarget(archs, ptx, cpu_target(processor), host=False)


def _capabilities_here() -> list[tuple[int, int]]:
    """The compute capabilities of the GPUs of this machine."""
    try:
        return compute_capabilities()
    except MissingDevice as error:
        hint = "name an architecture, which needs no GPU: --target cuda:sm_90"
        raise MissingDevice(f"no GPU here to compile for: {error.what}", hint=hint) from None


def _known(names: Sequence[str]) -> tuple[str, ...]:
    """The architectures of some names; an error lists those that are known."""
    unknown = [name for name in names if name not in SHARED_MEMORY]
    if names and not unknown:
        return _ordered(names)
    close = [near for name in unknown for near in get_close_matches(name, SHARED_MEMORY, n=1)]
    meant = f"did you mean {', '.join(dict.fromkeys(close))}? " if close else ""
    what = ", ".join(map(repr, unknown)) or "is named"
    raise UsageError(f"no CUDA architecture {what}", hint=f"{meant}Known: {_listing()}")


def _ordered(names: Iterable[str]) -> tuple[str, ...]:
    """The architectures, each once, oldest first."""
    return tuple(sorted(set(names), key=list(SHARED_MEMORY).index))


def _arch_of(capability: tuple[int, int]) -> str:
    """The newest architecture whose machine code a GPU runs: of its generation, and no newer."""
    major, minor = capability
    numbers = {arch: divmod(int(arch.removeprefix("sm_")), 10) for arch in SHARED_MEMORY}
    older = [arch for arch, (x, y) in numbers.items() if x == major and y <= minor]
    fitting = [] if capability in ON_A_CHIP else older
    if not fitting:
        raise MissingDevice(
            f"the GPU here has compute capability {major}.{minor}, which nothing compiles for",
            hint=f"known: {_listing()}; PTX (--ptx) also runs on GPUs that are newer",
        )
    return fitting[-1]


def _listing() -> str:
    return ", ".join(SHARED_MEMORY)
