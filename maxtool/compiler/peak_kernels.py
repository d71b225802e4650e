"""Kernels that do one thing as fast as this machine can: read memory, multiply and add.

What a compiled model reaches is a share of these. They are compiled and run in this process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import tvm
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import CpuTarget, cpu_target
from maxtool.compiler.kernels.cpu import builder as b

# Stretches of memory that a thread reads side by side: the CPU fetches each ahead.
STREAMS = 4
# Sums that do not wait for each other: two multiply-adds a cycle, each of four or five cycles.
CHAINS = 10
ROUNDS = 1 << 14
LINE = 64  # bytes of a cache line
# More than any cache holds.
READ_BYTES = 1 << 28
# Parts for each thread: a thread that is interrupted holds up the others for one of them.
PARTS = 8


@dataclass(frozen=True)
class PeakKernels:
    """Kernels for the machine that this runs on, on ``threads`` threads."""

    threads: int
    target: CpuTarget = field(default_factory=cpu_target)

    @property
    def read_bytes(self) -> int:
        """Bytes that a call of :attr:`read` reads."""
        return self._parts * STREAMS * self._stretch * 4

    @property
    def flops(self) -> int:
        """Floating-point operations of a call of :attr:`multiply`: two for each multiply-add."""
        return 2 * self._parts * ROUNDS * CHAINS * self.target.tile.width

    @cached_property
    def read(self) -> Callable[[], Any]:
        """Read some memory once."""
        data = np.ones((self._parts, STREAMS, self._stretch), "i4")
        return self._call("read", _read(self.target.tile.width), data, "i4")

    @cached_property
    def multiply(self) -> Callable[[], Any]:
        """Multiply and add in registers, in float32."""
        factors = np.full((2, self.target.tile.width), 0.5, "f4")
        return self._call("multiply", _multiply(self.target.tile.width), factors, "f4")

    @property
    def _parts(self) -> int:
        return self.threads * PARTS

    @property
    def _stretch(self) -> int:
        """Elements of a stretch: an odd number of lines, or all would be in the same cache sets."""
        lines = READ_BYTES // (self._parts * STREAMS * LINE)
        return (lines | 1) * (LINE // 4)

    def _call(
        self, name: str, function: b.PrimFunc, data: np.ndarray[Any, Any], dtype: str
    ) -> Callable[[], Any]:
        """Return a call of a compiled kernel on one array, and what it returns: its results."""
        run = b.build({name: function}, self.target.tvm)[name]
        results = np.zeros((self._parts, self.target.tile.width), dtype)
        tensors = [tvm.runtime.tensor(array) for array in (data, results)]

        def call() -> Any:  # noqa: ANN401 - a tensor of tvm
            run(*tensors)
            return tensors[-1]

        return call


def _read(width: int) -> b.PrimFunc:
    """Sums of each part of memory, by the vector: nothing that is read may be left out."""
    with b.kernel("read") as kernel:
        parts, stretch = kernel.dim("parts"), kernel.dim("stretch")
        data = kernel.argument("data", (parts, STREAMS, stretch), "int32")
        sums = kernel.argument("sums", (parts, width), "int32")
        vectors = max(1, LINE // 4 // width)
        with T.parallel(parts) as part:
            totals = b.scratch((STREAMS * vectors, width), "int32")
            for total in range(STREAMS * vectors):
                b.store(totals, b.splat(b.int32(0), width), (total, 0), width)
            with T.serial(b.quotient(stretch, vectors * width)) as i:
                for total in range(STREAMS * vectors):
                    stream, vector = divmod(total, vectors)
                    start = (i * vectors + vector) * width
                    more = b.load(data, (part, stream, start), width)
                    so_far = b.load(totals, (total, 0), width)
                    b.store(totals, so_far + more, (total, 0), width)
            _store_sum(sums, part, totals, STREAMS * vectors, width)
    return kernel.function


def _multiply(width: int) -> b.PrimFunc:
    """``x * factor + term`` over and over, on vectors that stay in registers."""
    with b.kernel("multiply") as kernel:
        parts = kernel.dim("parts")
        factors = kernel.argument("factors", (2, width))
        sums = kernel.argument("sums", (parts, width))
        with T.parallel(parts) as part:
            totals = b.Registers(CHAINS, width, width)
            for chain in range(CHAINS):
                totals.set(chain, 0, width, b.splat(float(chain), width))
            factor, term = (b.let(b.load(factors, (row, 0), width)) for row in range(2))
            with T.serial(b.integer(ROUNDS)):
                for chain in range(CHAINS):
                    totals.set(chain, 0, width, totals.get(chain, 0, width) * factor + term)
            _store_sum(sums, part, totals.buffer, CHAINS, width)
    return kernel.function


def _store_sum(sums: b.Buffer, part: b.Expr, totals: b.Buffer, count: int, width: int) -> None:
    """Store the sum of some vectors as one row."""
    whole = b.load(totals, (0, 0), width)
    for total in range(1, count):
        whole = whole + b.load(totals, (total, 0), width)
    b.store(sums, whole, (part, 0), width)
