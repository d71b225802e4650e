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
from maxtool.compiler.kernels.cpu.integer_dot import IntegerDot, instruction_set

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

    @property
    def int8_operations(self) -> int:
        """Operations of a call of :attr:`multiply_int8`: two for each multiply-add."""
        dot = self._dot
        return 2 * self._parts * ROUNDS * CHAINS * 4 * dot.depth * dot.lanes * dot.rows

    @cached_property
    def read(self) -> Callable[[], Any]:
        """Read some memory once."""
        data = np.ones((self._parts, STREAMS, self._stretch), "i4")
        width = self.target.tile.width
        return self._call("read", _read(width), data, "i4", width)

    @cached_property
    def multiply(self) -> Callable[[], Any]:
        """Multiply and add in registers, in float32."""
        width = self.target.tile.width
        factors = np.full((2, width), 0.5, "f4")
        return self._call("multiply", _multiply(width), factors, "f4", width)

    @cached_property
    def multiply_int8(self) -> Callable[[], Any]:
        """Multiply bytes and add, by the instructions that products of quantized weights use."""
        width = self._dot.lanes
        factors = np.full((1, width), 0x01010101, "i4")
        return self._call("multiply_int8", multiply_int8(self._dot), factors, "i4", width)

    @property
    def _dot(self) -> IntegerDot:
        machine = instruction_set(self.target)
        matrices = machine.matrices
        return matrices if isinstance(matrices, IntegerDot) else machine.narrow

    @property
    def _parts(self) -> int:
        return self.threads * PARTS

    @property
    def _stretch(self) -> int:
        """Elements of a stretch: an odd number of lines, or all would be in the same cache sets."""
        lines = READ_BYTES // (self._parts * STREAMS * LINE)
        return (lines | 1) * (LINE // 4)

    def _call(
        self,
        name: str,
        function: b.PrimFunc,
        data: np.ndarray[Any, Any],
        dtype: str,
        width: int,
    ) -> Callable[[], Any]:
        """Return a call of a compiled kernel on one array, and what it returns: its results."""
        run = b.build({name: function}, self.target.tvm)[name]
        results = np.zeros((self._parts, width), dtype)
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


def multiply_int8(dot: IntegerDot) -> b.PrimFunc:
    """Products of each sum's own bytes, which no pass can compute once for all rounds."""
    with b.kernel("multiply_int8") as kernel:
        parts = kernel.dim("parts")
        factors = kernel.argument("factors", (1, dot.lanes), "int32")
        sums = kernel.argument("sums", (parts, dot.lanes), "int32")
        with T.parallel(parts) as part:
            width = dot.rows * dot.lanes * (2 if dot.sums == "int16" else 1)
            totals = b.scratch((CHAINS, width), dot.sums)
            for chain in range(CHAINS):
                start = dot.start([dot.start_bits(b.int32(chain), b.int32(1))] * dot.rows)
                b.store(totals, start, (chain, 0), width)
            factor = b.let(b.splat(factors[0, 0], 1 if dot.rows == 1 else dot.rows * dot.depth))
            with T.serial(b.integer(ROUNDS)):
                for chain in range(CHAINS):
                    total = b.load(totals, (chain, 0), width)
                    weights = T.reinterpret(
                        b.vector_type("uint8", 4 * dot.depth * dot.lanes), total
                    )
                    more = dot.add(total, weights, [factor] * dot.parts)
                    b.store(totals, more, (chain, 0), width)
            all_sums = [(chain, row) for chain in range(CHAINS) for row in range(dot.rows)]
            whole = b.splat(b.int32(0), dot.lanes)
            for chain, row in all_sums:
                whole = whole + dot.total(b.load(totals, (chain, 0), width), row)
            b.store(sums, whole, (part, 0), dot.lanes)
    return kernel.function


def _store_sum(sums: b.Buffer, part: b.Expr, totals: b.Buffer, count: int, width: int) -> None:
    """Store the sum of some vectors as one row."""
    whole = b.load(totals, (0, 0), width)
    for total in range(1, count):
        whole = whole + b.load(totals, (total, 0), width)
    b.store(sums, whole, (part, 0), width)
