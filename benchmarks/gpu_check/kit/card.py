"""The card: its name, its memory, and what it reaches without us; prints one JSON object.

Bandwidth is that of cudaMemcpy from device to device, in bytes read and written; the matrix rate is
that of cuBLAS through PyTorch, where PyTorch is installed.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from statistics import median

RUNTIMES = ("libcudart.so.13", "libcudart.so")
COPIED = 4 << 30
ROUNDS = 10
SIZE = 8192
DEVICE_TO_DEVICE = 3


class Runtime:
    """The few calls of the CUDA runtime that are needed, each checked."""

    def __init__(self, library: str | None = None) -> None:
        for name in [library] if library else RUNTIMES:
            try:
                self._library = ctypes.CDLL(name)
                return
            except OSError:
                continue
        raise SystemExit(f"none of {', '.join(RUNTIMES)} can be loaded")

    def call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise SystemExit(f"{name} failed with CUDA error {status}")

    def allocate(self, nbytes: int) -> ctypes.c_void_p:
        pointer = ctypes.c_void_p()
        self.call("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(nbytes))
        return pointer

    def seconds(self, work: Callable[[], None]) -> float:
        """Device time of what ``work`` puts on the default stream."""
        events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for event in events:
            self.call("cudaEventCreate", ctypes.byref(event))
        self.call("cudaEventRecord", events[0], None)
        work()
        self.call("cudaEventRecord", events[1], None)
        self.call("cudaEventSynchronize", events[1])
        spent = ctypes.c_float()
        self.call("cudaEventElapsedTime", ctypes.byref(spent), *events)
        for event in events:
            self.call("cudaEventDestroy", event)
        return spent.value / 1000


def bandwidth(runtime: Runtime) -> float:
    """Bytes read and written in a second by a copy within the device."""
    source, target = runtime.allocate(COPIED), runtime.allocate(COPIED)

    def copy() -> None:
        nbytes = ctypes.c_size_t(COPIED)
        runtime.call("cudaMemcpyAsync", target, source, nbytes, DEVICE_TO_DEVICE, None)

    runtime.call("cudaMemset", source, 1, ctypes.c_size_t(COPIED))
    copy()
    spent = median(runtime.seconds(copy) for _ in range(ROUNDS))
    for pointer in (source, target):
        runtime.call("cudaFree", pointer)
    return 2 * COPIED / spent


def facts() -> dict[str, object]:
    """Return PyTorch's description of the card, and how fast it multiplies bfloat16 matrices."""
    try:
        import torch
    except ImportError:
        return {"torch": None, "bf16_flops": None}
    properties = torch.cuda.get_device_properties(0)
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    events[0].record()
    for _ in range(ROUNDS):
        a @ b
    events[1].record()
    torch.cuda.synchronize()
    spent = events[0].elapsed_time(events[1]) / 1000 / ROUNDS
    return {
        "torch": torch.__version__,
        "name": properties.name,
        "memory": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "bf16_flops": 2 * SIZE**3 / spent,
    }


if __name__ == "__main__":
    print(json.dumps({"copy_bytes_per_second": bandwidth(Runtime()), **facts()}))
