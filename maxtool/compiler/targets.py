"""Targets of every kind by name, and what the compiler needs to know of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from maxtool.compiler.cpu_target import CpuTarget, cpu_target
from maxtool.compiler.cuda.cuda_target import CudaTarget, cuda_target
from maxtool.errors import UsageError

HINT = (
    "give cpu for this machine, cpu:NAME (cpu:x86-64-v3), cuda for the GPU here, "
    "or cuda:sm_XX (cuda:sm_80,sm_90)"
)


# What is compiled for: a CPU, or GPUs and the CPU of their machine. Its ``kind`` decides which
# kernels, rules and passes it takes.
Target: TypeAlias = CpuTarget | CudaTarget

# What finds the target of each kind of device of this machine.
OF_DEVICE: dict[str, Callable[[], Target]] = {"cpu": cpu_target, "gpu": cuda_target}


class Targets(dict[str, Target]):
    """Targets of this machine's devices, by kind; each is determined on first use."""

    def __missing__(self, target_kind: str) -> Target:
        return self.setdefault(target_kind, OF_DEVICE[target_kind]())


def parse_target(name: str, *, ptx: bool = False) -> Target:
    """The target a user names, as :func:`cpu_target` and :func:`cuda_target` have it."""
    target_kind = name.partition(":")[0]
    if target_kind == "cuda":
        return cuda_target(name, ptx=ptx)
    if target_kind != "cpu":
        raise UsageError(f"no target {name!r}", hint=HINT)
    if ptx:
        raise UsageError(f"--ptx is for GPUs, and the target is {name}")
    return cpu_target(name)
