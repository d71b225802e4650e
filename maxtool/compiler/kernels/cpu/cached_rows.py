"""Keys and values as a cache holds them: of any float type, or in blocks of Q8_0 with scales."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.fetch_ahead import LINE
from maxtool.compiler.kernels.cpu.quantize_q8_0 import BLOCK

# The type of values in blocks of Q8_0. Keys are int32, four of their elements each.
QUANTS, WORDS = "int8", "int32"


@dataclass(frozen=True, slots=True)
class CachedRows:
    """Keys ``[caches, heads, elements of a head, context]``, or values, these two swapped.

    Attributes:
        dtype: Their type.
        rows: The keys, or the values.
        scales: float16 like ``rows``, with one for each block of a head's elements; None if they
            have none.
    """

    dtype: str
    rows: b.Buffer
    scales: b.Buffer | None = None

    @classmethod
    def of_floats(cls, kernel: b.Kernel, name: str, dtype: str, sizes: b.Indices) -> CachedRows:
        """Declare the next parameter of a kernel."""
        return cls(dtype, kernel.argument(name, sizes, b.STORAGE[dtype]))

    @classmethod
    def of_blocks(
        cls, kernel: b.Kernel, name: str, dtype: str, sizes: b.Indices, blocks: b.Indices
    ) -> CachedRows:
        """Declare the next two parameters: the rows, of such sizes, and the scales."""
        rows = kernel.argument(name, sizes, dtype)
        return cls(dtype, rows, kernel.argument(f"{name}_scale", blocks, "float16"))

    def vector(self, place: b.Indices, width: int) -> b.Expr:
        """Elements as float32; of values in blocks such as lie in one block."""
        if self.scales is None:
            return b.load_weight(self.rows, place, width, self.dtype)
        *outer, first = place
        scale = T.Cast("float32", self.scales[(*outer, b.quotient(b.integer(first), BLOCK))])
        quants = T.Cast(b.vector_type("float32", width), b.load(self.rows, place, width))
        return quants * b.splat(b.let(scale), width)

    def prefetch(self, place: b.Indices, count: int) -> None:
        """Fetch elements into the cache that will be read soon; there need not be such.

        Neighbouring keys are a row of their own for each element of a head, so many and so short
        that the processor does not see which will be next.
        """
        *outer, last = place
        for at in range(0, count, LINE // np.dtype(str(self.rows.dtype)).itemsize):
            b.prefetch(self.rows, (*outer, last + at))
