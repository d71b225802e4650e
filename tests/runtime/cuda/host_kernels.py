"""CUDA C++ that a compiler generated, as a library of kernels for the stub of a GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
KERNEL = re.compile(r'extern "C" __global__ void __launch_bounds__\([\d, ]+\) (\w+)\(([^)]*)\)')
# Static memory serves one block after the other; memory of a size given at launch is one array.
STATIC = re.compile(r"__shared__ (alignas\(\d+\))")
DYNAMIC = re.compile(r"extern __shared__ __align__\(\d+\) (\w+) (\w+)\[\];")


def build(source: str, library: Path, *, own: Mapping[str, str] | None = None) -> None:
    """Compile the kernels of a source for this machine.

    Args:
        source: What TVM generated.
        library: Where the library goes.
        own: Headers with kernels that take the place of those of the same name.
    """
    file = library.with_suffix(".cc")
    file.write_text(for_host(source, own or {}), encoding="utf-8")
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), "c++")
    options = ["-std=c++17", "-shared", "-fPIC", "-O2", "-fno-strict-aliasing", "-w", f"-I{HERE}"]
    done = subprocess.run(
        [compiler, *options, file, "-o", library],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert not done.returncode, done.stderr[:4000]


def for_host(source: str, own: Mapping[str, str]) -> str:
    """The source with what runs each of its kernels; without what it brings along for GPUs."""
    code = source[source.index('extern "C"') :]
    kernels = dict(KERNEL.findall(code))
    code = DYNAMIC.sub(r"\1* \2 = reinterpret_cast<\1*>(dynamic_shared);", code)
    code = STATIC.sub(r"\1 static", code)
    hidden = "".join(f"#define {name} compiled_{name}\n" for name in own)
    shown = "".join(f'#undef {name}\n#include "{header}"\n' for name, header in own.items())
    runs = "".join(_run(name, parameters.split(",")) for name, parameters in kernels.items())
    return f'#include "host.h"\n{hidden}{code}\n{shown}{runs}'


def _run(name: str, parameters: list[str]) -> str:
    types = [" ".join(p.replace("__restrict__", "").split()[:-1]) for p in parameters]
    values = ", ".join(f"value<{kind}>(p[{i}])" for i, kind in enumerate(types))
    return f"RUN({name}, {len(types)}, {name}({values}))\n"
