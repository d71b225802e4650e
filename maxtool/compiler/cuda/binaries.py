"""The device code of a compiled module: its source, compiled for each architecture."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from maxtool.compiler.cuda.compiling import DeviceCode, machine_code, portable_code
from maxtool.compiler.cuda.target import CudaTarget
from maxtool.errors import CompilationFailed

# TVM hands source to the driver where there is one, and keeps it where there is none; this makes
# the one case of the two.
_KEEP_SOURCE = "TVM_COMPILE_FORCE_FALLBACK"
_KIND = "cuda"


@contextmanager
def source_kept() -> Iterator[None]:
    """While the block runs, TVM does the same on machines with a GPU and without one."""
    before = os.environ.get(_KEEP_SOURCE)
    os.environ[_KEEP_SOURCE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_KEEP_SOURCE]
        else:
            os.environ[_KEEP_SOURCE] = before


def device_source(executable: Any) -> str:  # noqa: ANN401 - tvm ships no types
    """The CUDA C++ in what ``tvm.compile`` returned.

    Raises:
        CompilationFailed: If there is none.
    """
    found = [one for one in _imports(executable.mod) if one.kind == _KIND]
    if len(found) != 1:
        raise CompilationFailed(
            f"TVM made {len(found)} pieces of device code where one is expected"
        )
    return str(found[0].inspect_source())


def device_code(executable: Any, target: CudaTarget) -> list[DeviceCode]:  # noqa: ANN401
    """The machine code, and the PTX, that a target asks for.

    Raises:
        MachineLacks: If the packages of the extra ``cuda`` are not installed.
        CompilationFailed: If there is no device code, or it does not compile.
    """
    ptx = portable_code(device_source(executable), target.archs)
    codes = machine_code(ptx, target.archs)
    return [*codes, ptx] if target.ptx else codes


def _imports(module: Any) -> Iterator[Any]:  # noqa: ANN401
    yield module
    for one in module.imports:
        yield from _imports(one)
