"""Code for the GPUs of this machine, compiled and loaded in this process."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from maxtool.compiler.cuda.binaries import GeneratedModule, device_source
from maxtool.compiler.cuda.cuda_target import CudaTarget
from maxtool.compiler.cuda.device_code import DeviceCode, machine_code, portable_code
from maxtool.compiler.linking import export_library
from maxtool.errors import MachineLacks
from maxtool.runtime.loader.cuda_code import given_code
from maxtool.runtime.loader.cuda_runtime import find_library
from maxtool.runtime.loader.errors import RunError
from maxtool.runtime.loader.machine import CUDA_RUNTIME, MARKS, load_library

MODULE = "model.so"


def load_device_module(compiled: GeneratedModule, target: CudaTarget) -> Any:  # noqa: ANN401 - tvm ships no types
    """Load code for the GPUs of this machine, as a module for a virtual machine."""
    _require_runtime()
    if not compiled.sources:  # values are moved, and nothing is computed
        return compiled.executable
    code = _code(device_source(compiled), target.archs)
    with tempfile.TemporaryDirectory(prefix="maxtool-") as folder:
        library, binary = Path(folder, MODULE), Path(folder, code.file)
        export_library(compiled.executable, library, target.processor)
        binary.write_bytes(code.data)
        with given_code(binary):
            return load_library(library)


def _code(source: str, archs: Sequence[str]) -> DeviceCode:
    """Machine code for the one kind of GPU there is; PTX where they differ."""
    ptx = portable_code(source, archs)
    return machine_code(ptx, archs)[0] if len(archs) == 1 else ptx


def _require_runtime() -> None:
    """Load TVM's runtime for GPUs, which it leaves out where it does not find CUDA's by itself."""
    try:
        find_library()
        if tvm_ffi.get_global_func(MARKS[CUDA_RUNTIME], allow_missing=True) is None:
            library = Path(tvm.__file__).parent / "lib" / CUDA_RUNTIME
            ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    except (RunError, OSError) as error:
        raise MachineLacks(f"GPUs cannot be used: {error}") from None
