"""The device code of a compiled module: its source, kept beside it, compiled per architecture."""

from __future__ import annotations

import os
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import Any

import tvm
import tvm_ffi

from maxtool.compiler.cuda.cuda_target import CudaTarget
from maxtool.compiler.cuda.device_code import DeviceCode, machine_code, portable_code
from maxtool.errors import CompilationFailed

# TVM hands source to the driver where there is one, and keeps it where there is none; this makes
# the one case of the two.
_KEEP_SOURCE = "TVM_COMPILE_FORCE_FALLBACK"
# What TVM calls with the source that it has generated; it goes on with the text that is returned.
_GENERATED = "tvm_callback_cuda_postproc"
# What a library has in place of source: whoever loads it brings machine code.
_NO_SOURCE = "#error the kernels of this library are in the .cubin files beside it\n"

_sources: ContextVar[list[str] | None] = ContextVar("_sources", default=None)


@dataclass(frozen=True, slots=True)
class GeneratedModule:
    """The code that TVM generates for a module."""

    # TVM's: run it in a virtual machine, or export it as a library. Of the kernels for GPUs it has
    # the names and signatures, and nothing of what they do.
    executable: Any
    sources: tuple[str, ...]  # the CUDA C++ of those kernels


def compile_apart(module: Any, target: Any, **pipelines: Any) -> GeneratedModule:  # noqa: ANN401 - tvm ships no types
    """``tvm.compile``, with CUDA C++ beside its result and not in it.

    That is all the same on machines with a GPU and without one.
    """
    sources: list[str] = []
    token = _sources.set(sources)
    try:
        with _source_kept:
            executable = tvm.compile(module, target=target, **pipelines)
    finally:
        _sources.reset(token)
    return GeneratedModule(executable, tuple(sources))


class _SharedVariable:
    """A variable of the environment, set while any thread is in the block and as it was after."""

    def __init__(self, name: str, value: str) -> None:
        self._name, self._value = name, value
        self._lock, self._inside = Lock(), 0
        self._before: str | None = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = os.environ.get(self._name)
                os.environ[self._name] = self._value
            self._inside += 1

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside:
                return
            if self._before is None:
                del os.environ[self._name]
            else:
                os.environ[self._name] = self._before


_source_kept = _SharedVariable(_KEEP_SOURCE, "1")


def _put_aside(source: str, target: Any) -> str:  # noqa: ANN401
    """Keep the source of a compilation of ours; others are as if this were not here."""
    sources = _sources.get()
    if sources is None:
        return source if _others is None else str(_others(source, target))
    sources.append(source)
    return _NO_SOURCE


_others = tvm_ffi.get_global_func(_GENERATED, allow_missing=True)
tvm_ffi.register_global_func(_GENERATED, _put_aside, override=True)


def device_source(compiled: GeneratedModule) -> str:
    """The CUDA C++ of a module that has some."""
    if len(compiled.sources) != 1:
        raise CompilationFailed(
            f"TVM made {len(compiled.sources)} pieces of device code where one is expected"
        )
    return compiled.sources[0]


def device_code(compiled: GeneratedModule, target: CudaTarget) -> list[DeviceCode]:
    """The machine code, and the PTX, that a target asks for."""
    ptx = portable_code(device_source(compiled), target.archs)
    codes = machine_code(ptx, target.archs)
    return [*codes, ptx] if target.ptx else codes
