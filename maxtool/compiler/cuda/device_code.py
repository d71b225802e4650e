"""CUDA C++ to machine code for several architectures.

The source is optimised once, to PTX of the oldest of them: half of the work for one architecture.
Kernels use nothing that later ones add, so that PTX for these would say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from maxtool.compiler.cuda.nvrtc import translate
from maxtool.compiler.cuda.ptxas import assemble


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """Device code for one architecture."""

    name: str  # ``sm_XX`` for machine code, ``compute_XX`` for PTX
    data: bytes  # a cubin, which is an ELF file, or the text of the PTX
    log: str = ""  # what ptxas reports of machine code

    @property
    def is_machine(self) -> bool:
        """Return whether it is machine code."""
        return self.name.startswith("sm_")

    @property
    def file(self) -> str:
        """File name in an artifact."""
        return f"{self.name}.{'cubin' if self.is_machine else 'ptx'}"


def portable_code(source: str, archs: Sequence[str]) -> DeviceCode:
    """Compile CUDA C++ to PTX, which GPUs from the first, oldest architecture on can run."""
    virtual = archs[0].replace("sm_", "compute_")
    return DeviceCode(virtual, translate(source, virtual))


def machine_code(ptx: DeviceCode, archs: Sequence[str]) -> list[DeviceCode]:
    """Compile PTX for several architectures, none of them older, at the same time."""
    with ThreadPoolExecutor() as pool:  # a process for each
        assembled = pool.map(lambda arch: assemble(ptx.data, arch), archs)
        return [DeviceCode(arch, *code) for arch, code in zip(archs, assembled, strict=True)]
