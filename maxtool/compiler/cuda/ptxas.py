"""PTX to machine code, by NVIDIA's ptxas, which is in nvrtc too.

(And in nvJitLink, but there it compiles code to be linked: kernels take more registers, and spill.)
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from maxtool.compiler.cuda.wheels import compilers
from maxtool.compiler.tool_runner import run_tool

# Kernels are compiled by so many threads; the bytes, though not what they do, may depend on it.
SPLIT = "--split-compile=4"
REPORT = "-v"


def assemble(ptx: bytes, arch: str) -> tuple[bytes, str]:
    """Compile PTX to a cubin, an ELF file; and what ptxas reports of the kernels.

    Messages of ptxas are in the ``problems`` of an error.
    """
    ptxas = str(compilers().ptxas)
    with tempfile.TemporaryDirectory(prefix="maxtool-") as folder:
        text, cubin = Path(folder, "model.ptx"), Path(folder, "model.cubin")
        text.write_bytes(ptx)
        command = [ptxas, f"-arch={arch}", REPORT, SPLIT, str(text), "-o", str(cubin)]
        log = run_tool(f"ptxas for {arch}", command)
        return cubin.read_bytes(), log
