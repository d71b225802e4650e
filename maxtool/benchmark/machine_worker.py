"""Process that measures this machine: ``python -m maxtool.benchmark.machine_worker``.

It compiles a kernel that reads memory, and two that multiply and add.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from maxtool.benchmark.serving import Answer, serve
from maxtool.compiler.peak_kernels import PeakKernels
from maxtool.runtime.loader.host import set_threads

# As many bytes of weights as make the loader use all threads.
LARGE = 1 << 60


class MachineWorker:
    """Kernels that run in turns with a model."""

    def __init__(self) -> None:
        self._kernels = PeakKernels(set_threads(LARGE))

    def describe(self) -> Answer:
        """Compile the kernels: the processor, and the threads that they run on."""
        for kernel in (self._kernels.read, self._kernels.multiply, self._kernels.multiply_int8):
            kernel()
        return {
            "target": self._kernels.target.manifest,
            "threads": self._kernels.threads,
            "read_bytes": self._kernels.read_bytes,
        }

    def turn(self, seconds: float) -> Answer:
        """Measure each kernel for so long: bytes a second, and operations of each type."""
        kernels = self._kernels
        return {
            "read": kernels.read_bytes * _rate(kernels.read, seconds),
            "float32": kernels.flops * _rate(kernels.multiply, seconds),
            "int8": kernels.int8_operations * _rate(kernels.multiply_int8, seconds),
        }


def _rate(call: Callable[[], object], seconds: float) -> float:
    """Calls a second."""
    began, count, elapsed = time.perf_counter(), 0, 0.0
    while elapsed < seconds:
        call()
        count, elapsed = count + 1, time.perf_counter() - began
    return count / elapsed


if __name__ == "__main__":
    worker = MachineWorker()
    serve({order.__name__: order for order in (worker.describe, worker.turn)})
