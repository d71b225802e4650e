"""Keys and values as a cache holds them, read as float32: of any float type, or in blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.quantize_q8_0 import BLOCK

# The type of keys and values in blocks of Q8_0.
QUANTS = "int8"
LINE = 64  # bytes of a cache line


@dataclass(frozen=True, slots=True)
class CachedRows:
    """Keys, or values, of a cache.

    Attributes:
        dtype: Their type.
        axis: The axis of the elements of a head: 2 of transposed keys, 3 of values.
        rows: [caches, heads, ...].
        scales: float16 like ``rows``, with one for each ``BLOCK`` of these elements; None if they
            have none.
    """

    dtype: str
    axis: int
    rows: b.Buffer
    scales: b.Buffer | None

    @classmethod
    def declared(
        cls, kernel: b.Kernel, name: str, dtype: str, sizes: b.Indices, axis: int
    ) -> CachedRows:
        """Declare the next parameters of a kernel: the rows, and the scales if they have them."""
        if dtype != QUANTS:
            return cls(dtype, axis, kernel.argument(name, sizes, b.STORAGE[dtype]), None)
        blocks = [*sizes]
        blocks[axis] = b.quotient(sizes[axis], BLOCK)
        rows = kernel.argument(name, sizes, QUANTS)
        return cls(dtype, axis, rows, kernel.argument(f"{name}_scale", blocks, "float16"))

    @property
    def span(self) -> int:
        """Elements of a head that share factors."""
        return int(self.rows.shape[self.axis]) if self.scales is None else BLOCK

    def scale(self, place: b.Indices, width: int) -> b.Expr | None:
        """The factors of the vector of ``width`` at a place of ``rows``; None if it has none.

        Vectors of a head's own elements lie in one block, and all have the same.
        """
        if self.scales is None:
            return None
        block = [*place]
        block[self.axis] = b.index(b.quotient(b.integer(place[self.axis]), BLOCK))
        along = 1 if self.axis == len(block) - 1 else width
        value = T.Cast(b.vector_type("float32", along), b.load(self.scales, block, along))
        return b.let(value if along == width else b.splat(b.let(value), width))

    def vector(self, place: b.Indices, width: int, scale: b.Expr | None) -> b.Expr:
        """The vector at a place, whose scale is known."""
        if scale is None:
            return b.load_weight(self.rows, place, width, self.dtype)
        return T.Cast(b.vector_type("float32", width), b.load(self.rows, place, width)) * scale

    def prefetch(self, place: b.Indices, count: int) -> None:
        """Fetch elements into the cache that will be read soon; there need not be such.

        Neighbouring keys are a row of their own for each element of a head, so many and so short
        that the processor does not see which will be next.
        """
        *outer, last = place
        for at in range(0, count, LINE // np.dtype(str(self.rows.dtype)).itemsize):
            b.prefetch(self.rows, (*outer, last + at))

    def scaled(self, place: b.Indices, width: int) -> b.Expr:
        """The vector at a place."""
        return self.vector(place, width, self.scale(place, width))
