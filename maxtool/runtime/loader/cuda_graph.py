"""Calls of compiled code that a GPU repeats by itself."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .cuda_runtime import NON_BLOCKING, STREAM, THIS_THREAD, Cuda, release
from .errors import RunError

ALLOCATION = "vm.builtin.alloc_storage"  # what TVM's virtual machine calls for memory


class RecordedGraph:
    """Work that was recorded once, with the memory that it uses.

    Args:
        cuda: The runtime of the GPU, which is the current one.
        machine: The virtual machine that the work runs on.
        work: Asks for the work, on the stream it is given. It is called twice: the first time to
            make TVM's pool hold enough memory, as none can be had while work is recorded, and to do
            what is asked for; the second time to be recorded, which may fail.
    """

    def __init__(
        self,
        cuda: Cuda,
        machine: Any,  # noqa: ANN401
        work: Callable[[ctypes.c_void_p], object],
    ) -> None:
        self._cuda = cuda
        with _memory_kept(machine, twice=True):
            work(STREAM)
        # Recorded work writes to the same places for ever: nobody else may be given them.
        with _memory_kept(machine) as self._memory:
            self._handle = self._record(work)

    def _record(self, work: Callable[[ctypes.c_void_p], object]) -> ctypes.c_void_p:
        """Work as a graph that can be launched."""
        # A stream that others do not wait for: they may go on while this one records.
        stream = self._cuda.create("cudaStreamCreateWithFlags", NON_BLOCKING)
        graph = ctypes.c_void_p()
        try:
            with _garbage_kept():
                self._cuda.call("cudaStreamBeginCapture", stream, THIS_THREAD)
                try:
                    work(stream)
                finally:
                    self._cuda.call("cudaStreamEndCapture", stream, ctypes.byref(graph))
            return self._cuda.create("cudaGraphInstantiate", graph, ctypes.c_ulonglong(0))
        finally:
            if graph:
                release(self._cuda, "cudaGraphDestroy", graph)
            release(self._cuda, "cudaStreamDestroy", stream)

    def launch(self) -> None:
        """Launch the recorded work again, in stream order."""
        self._cuda.call("cudaGraphLaunch", self._handle, STREAM)

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            release(self._cuda, "cudaGraphExecDestroy", self._handle)


@contextmanager
def _memory_kept(machine: Any, *, twice: bool = False) -> Iterator[list[object]]:  # noqa: ANN401
    """Memory that calls of the virtual machine take does not go back to the pool when they end.

    Gives the list that keeps it. Nothing is used twice within a call then, so that its work needs
    the same memory whenever it is called. ``twice`` as much is taken where the next call is to find
    enough in the pool: the machine itself keeps what a call gave until the next one has ended.
    """
    import tvm_ffi

    kept: list[object] = []

    def keep(take: Any, name: str, before: bool, value: object, *size: object) -> int:  # noqa: ANN401
        if name == ALLOCATION and not before:
            kept.extend([value, take(*size)] if twice else [value])
        return 0  # the call goes on

    instrument = machine.get_function("set_instrument")
    instrument(tvm_ffi.convert(keep))
    try:
        yield kept
    finally:
        with suppress(RuntimeError, RunError):
            instrument(None)


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Python looks for no garbage: memory of the GPU cannot be freed while work is recorded."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
