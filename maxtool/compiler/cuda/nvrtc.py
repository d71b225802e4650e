"""CUDA C++ to machine code, by NVIDIA's nvrtc from its wheels: no GPU, driver or toolkit."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from maxtool.compiler.cuda.headers import HEADERS
from maxtool.errors import CompilationFailed, MachineLacks

MAJOR = 13
# The packages of the extra, and a header that each brings.
PACKAGES = {
    "cuda-bindings": None,
    "nvidia-cuda-nvrtc": None,
    "nvidia-cuda-runtime": "cuda_fp16.h",
    "nvidia-cuda-cccl": "nv/target",
}
# IEEE arithmetic: no --use_fast_math, as on the CPU. Kernels name the approximations they want.
OPTIONS = ("--std=c++17", "-default-device", "--disable-warnings")
# Kernels are optimised by so many threads; the bytes, though not what they do, depend on how many,
# so it is not the number of cores.
SPLIT = "--split-compile=4"
REPORT = "--ptxas-options=-v"
SHOWN = 5


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """Device code for one architecture.

    Attributes:
        name: ``sm_XX`` for machine code, ``compute_XX`` for PTX.
        data: A cubin, which is an ELF file, or the text of the PTX.
        log: What nvrtc and ptxas said.
    """

    name: str
    data: bytes
    log: str

    @property
    def is_machine(self) -> bool:
        """Whether it is machine code."""
        return _is_machine(self.name)

    @property
    def file(self) -> str:
        """Its name in an artifact."""
        return f"{self.name}.{'cubin' if self.is_machine else 'ptx'}"


def compile_source(source: str, codes: Sequence[str]) -> list[DeviceCode]:
    """Compile CUDA C++ for several architectures at the same time.

    Args:
        source: What TVM generates.
        codes: ``sm_XX`` for machine code, ``compute_XX`` for PTX.

    Raises:
        MachineLacks: If the packages of the extra ``cuda`` are not installed.
        CompilationFailed: If the source does not compile; nvrtc's messages are in ``problems``.
    """
    nvrtc = load()
    with ThreadPoolExecutor() as pool:  # nvrtc works outside of Python's lock
        return list(pool.map(lambda code: _compile(nvrtc, source, code), codes))


def _is_machine(name: str) -> bool:
    return name.startswith("sm_")


@cache
def load() -> Any:  # noqa: ANN401 - built without types
    """The bindings of nvrtc.

    Raises:
        MachineLacks: Naming the packages that are not installed, or not of this major version.
    """
    absent = [f"{name} {MAJOR}" for name in PACKAGES if _major(name) != MAJOR]
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception as error:  # the bindings look for the library, and have errors of their own
        absent = absent or [str(error).strip().partition("\n")[0]]
    if absent:
        raise MachineLacks(
            "device code is compiled by nvrtc, which is not here",
            problems=absent,
            hint="pip install 'maxtool[cuda]' (wheels for Linux; no GPU is needed)",
        )
    return nvrtc


def _major(package: str) -> int | None:
    """The major version of an installed package."""
    try:
        version = distribution(package).version
    except PackageNotFoundError:
        return None
    return int(version.partition(".")[0])


@cache
def _include_paths() -> tuple[Path, ...]:
    """The folders of the headers that the packages bring."""
    found: dict[Path, None] = {}
    for package, header in PACKAGES.items():
        if header is None:
            continue
        files = distribution(package).files or []
        suffix = Path("include", header).as_posix()
        for file in files:
            if file.as_posix().endswith(suffix):
                path = Path(str(file.locate()))
                found[path.parents[len(Path(header).parts) - 1]] = None
    return tuple(found)


def _compile(nvrtc: Any, source: str, code: str) -> DeviceCode:  # noqa: ANN401
    machine = _is_machine(code)
    options = [f"--gpu-architecture={code}", *OPTIONS, SPLIT, *([REPORT] if machine else [])]
    options += [f"-I{path}" for path in _include_paths()]
    status, program = nvrtc.nvrtcCreateProgram(
        source.encode(), b"model.cu", len(HEADERS), list(HEADERS.values()), list(HEADERS)
    )
    _check(nvrtc, status)
    try:
        flags = [option.encode() for option in options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        log = _read(nvrtc, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise _failure(nvrtc, status, code, log)
        data = _read(nvrtc, program, "CUBIN" if machine else "PTX")
        return DeviceCode(code, data if machine else data.rstrip(b"\0"), log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _read(nvrtc: Any, program: Any, what: str) -> bytes:  # noqa: ANN401
    """One of the outputs of a program."""
    status, size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)
    _check(nvrtc, status)
    buffer = bytes(size)
    (status,) = getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    _check(nvrtc, status)
    return buffer


def _check(nvrtc: Any, status: Any) -> None:  # noqa: ANN401
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompilationFailed(f"nvrtc failed: {_said(nvrtc, status)}")


def _failure(nvrtc: Any, status: Any, code: str, log: str) -> CompilationFailed:  # noqa: ANN401
    errors = [line.strip() for line in log.splitlines() if "error" in line.lower()]
    what = f"nvrtc could not compile the device code for {code} ({_said(nvrtc, status)})"
    return CompilationFailed(what, problems=(errors or log.splitlines())[:SHOWN])


def _said(nvrtc: Any, status: Any) -> str:  # noqa: ANN401
    _, text = nvrtc.nvrtcGetErrorString(status)
    return bytes(text).decode()
