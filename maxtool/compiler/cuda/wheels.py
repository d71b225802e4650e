"""NVIDIA's compilers, from their wheels: no GPU, driver or toolkit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from maxtool.errors import MachineLacks

MAJOR = 13
NVRTC = "nvidia-cuda-nvrtc"
NVCC = "nvidia-cuda-nvcc"
# The packages of the extra, and a header that each brings.
PACKAGES = {
    "cuda-bindings": None,
    NVRTC: None,
    NVCC: None,
    "nvidia-cuda-runtime": "cuda_fp16.h",
    "nvidia-cuda-cccl": "nv/target",
}


@dataclass(frozen=True, slots=True)
class Compilers:
    """Paths of both compilers."""

    nvrtc: Any  # CUDA C++ to PTX: its bindings, which are built without types
    ptxas: Path  # PTX to machine code: the program


@cache
def compilers() -> Compilers:
    """Paths of both compilers; an error names packages that are missing, or of another version."""
    problems = _problems()
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
        ptxas = _program()
    except Exception as error:  # the bindings look for the library, and have errors of their own
        problems = problems or [str(error).strip().partition("\n")[0]]
    if problems:
        raise MachineLacks(
            "device code is compiled by nvrtc and ptxas, which are not here",
            problems=problems,
            hint="pip install 'maxtool[cuda]' (wheels for Linux; no GPU is needed)",
        )
    return Compilers(nvrtc, ptxas)


def _problems() -> list[str]:
    """Return the problems with the installed packages."""
    versions = {name: _version(name) for name in PACKAGES}
    absent = [f"{name} {MAJOR}" for name, version in versions.items() if version[:1] != (MAJOR,)]
    if not absent and versions[NVCC] < versions[NVRTC]:
        newest = ".".join(map(str, versions[NVRTC]))
        return [f"{NVCC} {newest}, to read what this version of {NVRTC} writes"]
    return absent


def _version(package: str) -> tuple[int, ...]:
    """The major and the minor version of an installed package; empty where there is none."""
    try:
        version = distribution(package).version
    except PackageNotFoundError:
        return ()
    # What is left of a broken installation may have none, whatever the type says.
    return tuple(map(int, re.findall(r"\d+", version or "")[:2]))


def _program() -> Path:
    """ptxas, which the package keeps among its own files."""
    for file in distribution(NVCC).files or []:
        if file.stem == "ptxas":
            return Path(str(file.locate()))
    raise FileNotFoundError(f"{NVCC} has no ptxas in it")


@cache
def include_paths() -> tuple[Path, ...]:
    """The folders of the headers that the packages bring."""
    folders: dict[Path, None] = {}
    for package, header in PACKAGES.items():
        if header is None:
            continue
        files = distribution(package).files or []
        suffix = Path("include", header).as_posix()
        for file in files:
            if file.as_posix().endswith(suffix):
                path = Path(str(file.locate()))
                folders[path.parents[len(Path(header).parts) - 1]] = None
    return tuple(folders)
