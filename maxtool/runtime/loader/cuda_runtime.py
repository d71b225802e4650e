"""NVIDIA's CUDA runtime library: where it is found, and those of its functions that are called."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .errors import MachineLacks, RunError

LIBRARY = "libcudart.so.13"
PACKAGE = "nvidia-cuda-runtime"
# Below a folder of the toolkit.
INSIDE = ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")
USUAL = ("/usr/local/cuda", "/usr/local/cuda-13", "/opt/cuda")

TO_DEVICE, TO_HOST, WITHIN = 1, 2, 3  # cudaMemcpyKind
NO_MEMORY = 2  # cudaErrorMemoryAllocation
NON_BLOCKING, NO_TIMES = 1, 2  # cudaStreamNonBlocking, cudaEventDisableTiming
THIS_THREAD = 1  # cudaStreamCaptureModeThreadLocal
# TVM calls everything on the default stream, and so do we: its pool of memory hands what one call
# gave back to the next, of whatever model, and only one stream keeps their order.
STREAM = ctypes.c_void_p(0)


def find_library() -> str:
    """The library, as the system finds it by name or as a path."""
    for path in _places():
        try:
            ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return path
    raise MachineLacks(
        f"there is no CUDA 13 runtime here ({LIBRARY})",
        hint=f"pip install {PACKAGE}, or set CUDA_HOME to the folder of a CUDA 13 toolkit",
    )


def _places() -> Iterator[str]:
    """The name alone, which the system looks up, then everywhere it may be installed."""
    yield LIBRARY
    homes = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    folders = [Path(home, inside) for home in (*homes, *USUAL) if home for inside in INSIDE]
    folders += [Path(folder or ".", "nvidia", "cu13", "lib") for folder in sys.path]
    yield from (str(folder / LIBRARY) for folder in folders if (folder / LIBRARY).is_file())


class Cuda:
    """The runtime of one GPU: each function raises ``RunError`` for what CUDA answers."""

    def __init__(self, index: int) -> None:
        self._library = ctypes.CDLL(find_library(), ctypes.RTLD_GLOBAL)
        self._library.cudaGetErrorString.restype = ctypes.c_char_p
        self.index = index

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of the library."""
        failure = getattr(self._library, name)(*arguments)
        if failure:
            said = (self._library.cudaGetErrorString(failure) or b"").decode(errors="replace")
            error_type = MachineLacks if failure == NO_MEMORY else RunError
            raise error_type(f"CUDA fails on device cuda:{self.index}: {name}: {said}")

    def forget_failure(self) -> None:
        """Clear the runtime's last error, so that nobody sees a failure that was handled."""
        self._library.cudaGetLastError()

    def create(self, name: str, *arguments: object) -> ctypes.c_void_p:
        """The handle that a function writes to its first argument."""
        handle = ctypes.c_void_p()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle

    def select(self) -> int:
        """Make this GPU the current one of the thread; the number of the one before."""
        before = ctypes.c_int()
        self.call("cudaGetDevice", ctypes.byref(before))
        self.call("cudaSetDevice", self.index)
        return before.value

    def restore(self, index: int) -> None:
        """Make another GPU the current one again."""
        self.call("cudaSetDevice", index)

    def copy(
        self, target: int, source: int, nbytes: int, direction: int, stream: object = STREAM
    ) -> None:
        """Copy bytes, in turn with everything else on the stream."""
        addresses = ctypes.c_void_p(target), ctypes.c_void_p(source)
        self.call("cudaMemcpyAsync", *addresses, ctypes.c_size_t(nbytes), direction, stream)

    def zero(self, target: int, nbytes: int) -> None:
        """Write zeros, in turn."""
        self.call("cudaMemsetAsync", ctypes.c_void_p(target), 0, ctypes.c_size_t(nbytes), STREAM)

    def wait(self) -> None:
        """Wait until everything that was asked for is done."""
        self.call("cudaStreamSynchronize", STREAM)

    def free_bytes(self) -> int:
        """Memory that is free."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value


class Event:
    """A mark among the work of the stream, which can be waited for."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._handle = cuda.create("cudaEventCreateWithFlags", NO_TIMES)

    def record(self) -> None:
        """Mark what was asked for so far."""
        self._cuda.call("cudaEventRecord", self._handle, STREAM)

    def wait(self) -> None:
        """Wait for what was marked last; returns at once if nothing was."""
        self._cuda.call("cudaEventSynchronize", self._handle)

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            release(self._cuda, "cudaEventDestroy", self._handle)


class Pinned:
    """Memory of the host that the GPU reads and writes by itself."""

    def __init__(self, cuda: Cuda, nbytes: int) -> None:
        self._cuda = cuda
        self._handle = cuda.create("cudaMallocHost", ctypes.c_size_t(nbytes))
        self.address = int(self._handle.value or 0)
        self.view = memoryview((ctypes.c_uint8 * nbytes).from_address(self.address)).cast("B")

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            release(self._cuda, "cudaFreeHost", self._handle)


def release(cuda: Cuda, name: str, handle: ctypes.c_void_p) -> None:
    """Release a handle; when a process ends, the driver may have done it already."""
    with suppress(RunError):
        cuda.call(name, handle)
