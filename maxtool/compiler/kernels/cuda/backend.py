"""The backend of GPUs for kernels of rows and elements."""

# ruff: noqa: ARG002 - what one kind of target does not need, another does

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.backend import Emit, Pixel, PixelBody, RowBody, VectorBody
from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import elements as e
from maxtool.compiler.kernels.cuda import scatter
from maxtool.compiler.kernels.cuda import vector_access as ln
from maxtool.compiler.kernels.cuda.rows import THREADS, ThreadGroup, each_element, each_row
from maxtool.compiler.kernels.formulas import Arithmetic

# What a thread computes with.
REGISTERS = Arithmetic("float32", in_registers=True)
# The widest vector of a row that several threads share.
WIDTH = 4


class CudaBackend:
    """Launches of CUDA, and vectors of up to 16 bytes in the registers of a thread."""

    exp = staticmethod(e.exp)
    read = staticmethod(e.read)
    rounded = staticmethod(e.rounded)
    write = staticmethod(e.write)
    load_vector = staticmethod(ln.read)
    scatter_elements = staticmethod(scatter.scatter_elements)
    scatter_rows = staticmethod(scatter.scatter_rows)
    store_vector = staticmethod(ln.write)

    def each_row(
        self,
        rows: b.Expr,
        n: b.Index,
        body: RowBody,
        *,
        dtypes: Sequence[str] = ("float32",),
        work: int = 1,
        group: int | None = None,
    ) -> None:
        """Launch ``body(row, threads)`` for every row.

        The threads are ``group``, or one for each vector of a row whose length is a number, or a
        warp or a block, which the length decides when it is known.
        """
        width = 1
        if isinstance(n, int):
            width = min((ln.widest(dtype, n) for dtype in dtypes), default=1)
            width = min(width, WIDTH)
            group = group or ln.threads_for(n // width, THREADS)
        if group is None:
            each_row(rows, n, body)
            return
        with b.launch([rows], group) as (row, thread):
            body(row, ThreadGroup(thread, group, width=width))

    def each_element(self, sizes: b.Indices, row: Callable[..., Emit], work: int = 1) -> None:
        """Launch ``row(*outer)(k)`` for every element, a thread for each."""
        with each_element(*sizes) as (*outer, k):
            row(*outer)(k)

    def each_vector(self, rows: b.Expr, dim: b.Index, body: VectorBody, work: b.Index = 1) -> None:
        """Launch ``body(row, k, width)``: a thread for 16 bytes, or for one element."""
        width = ln.widest("float32", dim) if isinstance(dim, int) else 1
        across = dim // width if isinstance(dim, int) else dim
        count = rows * across
        with b.launch([b.ceildiv(count, THREADS)], THREADS) as (block, thread):
            at = b.index(block * THREADS + T.Cast("int64", thread))
            with b.when(at < count):
                row = b.index(b.quotient(at, across))
                body(row, b.index((at - row * across) * width), width)

    def each_pixel(
        self, sizes: Pixel, channels: tuple[int, int], body: PixelBody, *, dtype: str, work: int
    ) -> None:
        """Launch ``body(pixel, group, channel, pieces)``, a thread for each channel."""
        groups, count = channels
        with each_element(*sizes, groups * count) as (*pixel, channel):
            body(pixel, b.index(b.quotient(channel, count)), channel, [(0, 1)])

    def compute(
        self, function: Callable[..., b.Expr], vectors: Sequence[b.Expr], width: int
    ) -> b.Expr:
        """Return ``function(m, *elements)`` for each element of the vectors, in registers."""
        return ln.made(width, lambda i: function(REGISTERS, *(vector[i] for vector in vectors)))
