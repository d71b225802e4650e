"""CUDA C++ to PTX, by NVIDIA's nvrtc."""

from __future__ import annotations

from typing import Any

from maxtool.compiler.cuda.headers import HEADERS
from maxtool.compiler.cuda.wheels import compilers, include_paths
from maxtool.errors import CompilationFailed

# IEEE arithmetic: no --use_fast_math, as on the CPU. Kernels name the approximations they want.
# And one thread: with several (--split-compile) the text differs from one process to the next.
OPTIONS = ("--std=c++17", "-default-device", "--disable-warnings")
SHOWN = 5


def translate(source: str, virtual: str) -> bytes:
    """Compile CUDA C++ to PTX, a text that ends with a newline.

    ``virtual`` names the features that it may use: ``compute_XX``. Messages of nvrtc are in the
    ``problems`` of an error.
    """
    nvrtc = compilers().nvrtc
    options = [f"--gpu-architecture={virtual}", *OPTIONS]
    options += [f"-I{path}" for path in include_paths()]
    status, program = nvrtc.nvrtcCreateProgram(
        source.encode(), b"model.cu", len(HEADERS), list(HEADERS.values()), list(HEADERS)
    )
    _check(nvrtc, status)
    try:
        flags = [option.encode() for option in options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise _failure(nvrtc, status, virtual, _read(nvrtc, program, "ProgramLog").decode())
        return _read(nvrtc, program, "PTX")
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _read(nvrtc: Any, program: Any, what: str) -> bytes:  # noqa: ANN401
    """One of the texts of a program."""
    status, size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)
    _check(nvrtc, status)
    buffer = bytes(size)
    (status,) = getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    _check(nvrtc, status)
    return buffer.rstrip(b"\0")


def _check(nvrtc: Any, status: Any) -> None:  # noqa: ANN401
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompilationFailed(f"nvrtc failed: {_said(nvrtc, status)}")


def _failure(nvrtc: Any, status: Any, virtual: str, log: str) -> CompilationFailed:  # noqa: ANN401
    errors = [line.strip() for line in log.splitlines() if "error" in line.lower()]
    what = f"nvrtc could not compile the device code for {virtual} ({_said(nvrtc, status)})"
    return CompilationFailed(what, problems=(errors or log.splitlines())[:SHOWN])


def _said(nvrtc: Any, status: Any) -> str:  # noqa: ANN401
    _, text = nvrtc.nvrtcGetErrorString(status)
    return bytes(text).decode()
