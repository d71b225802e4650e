"""Normalisation of rows whose length is known: each is read once, and kept in registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import elements as e
from maxtool.compiler.kernels.cuda import vector_access as ln
from maxtool.compiler.kernels.cuda.backend import REGISTERS, CudaBackend
from maxtool.compiler.kernels.cuda.rows import WARPS, ThreadGroup
from maxtool.compiler.kernels.kernel_options import ChainStep
from maxtool.compiler.kernels.normalize import inverse_root, rms_norm_rows
from maxtool.compiler.kernels.pointwise import run_chain

MOST_KEPT = 32  # elements of a thread
MOST_THREADS = 1024
VECTORS = 2  # of a thread, while there are threads


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Layout of a row in the registers of the threads that work on it."""

    dim: int  # elements of the row
    width: int  # neighbours that a thread loads together
    threads: int  # how many threads there are

    @property
    def pieces(self) -> int:
        """Vectors of a thread; of the last, some threads have none."""
        return -(-self.dim // (self.width * self.threads))

    @property
    def fits(self) -> bool:
        """Return whether the registers of a thread hold its part."""
        return self.pieces * self.width <= MOST_KEPT

    def each(self, lane: b.Expr, body: Callable[[int, b.Expr], None]) -> None:
        """Run ``body(offset, k)``: a vector that begins at ``offset`` here, and at ``k`` there."""
        step = self.threads * self.width
        for piece in range(self.pieces):
            k = b.index(T.Cast("int64", lane) * self.width + piece * step)
            if (piece + 1) * step <= self.dim:
                body(piece * self.width, k)
            else:
                with b.when(k < self.dim):
                    body(piece * self.width, k)


def layout(dim: int) -> RowLayout:
    """The layout of rows of a length."""
    width = ln.widest("float32", dim)
    warps = -(-dim // (width * VECTORS * b.WARP))
    return RowLayout(dim, width, min(warps * b.WARP, MOST_THREADS))


def rms_norm(dim: int, eps: float, out: str = "float32") -> b.PrimFunc:
    """Build ``y = x / sqrt(mean(x**2) + eps) * w``.

    Parameters of the kernel: x[rows, dim], w[dim], both float32, y[rows, dim] of type ``out``.
    """
    shape = layout(dim)
    if not shape.fits:
        return rms_norm_rows(CudaBackend(), "float32", "float32", eps, 0.0, False, out)
    with b.kernel(f"rms_norm_{dim}_{out}") as kernel:
        rows = kernel.dim("rows")
        x, w = kernel.argument("x", (rows, dim)), kernel.argument("w", (dim,))
        y = kernel.argument("y", (rows, dim), e.storage_type(out))
        with _each_row(rows, shape) as (row, threads):
            _normalised(
                shape,
                threads,
                eps,
                w,
                lambda k: ln.read(x, (row, k), shape.width, "float32"),
                lambda k, values: ln.write(y, values, (row, k), shape.width, out),
            )
    return kernel.function


def chain_rms_norm(
    dim: int, eps: float, inputs: int, steps: Sequence[ChainStep], kept: bool, out: str = "float32"
) -> b.PrimFunc:
    """Build a chain of elementwise operations and the normalisation of its result.

    Parameters of the kernel: each input of the chain [rows, dim], w[dim], the result of the chain
    [rows, dim] if it is ``kept``, all float32; its :func:`rms_norm`, y[rows, dim] of type ``out``.
    Only for a ``dim`` whose layout fits.
    """
    shape = layout(dim)
    name = "_".join(dict.fromkeys(step.op for step in steps))
    with b.kernel(f"{name}_rms_norm_{dim}_{out}") as kernel:
        rows = kernel.dim("rows")
        sources = [kernel.argument(f"x{index}", (rows, dim)) for index in range(inputs)]
        w = kernel.argument("w", (dim,))
        result = kernel.argument("result", (rows, dim)) if kept else None
        y = kernel.argument("y", (rows, dim), e.storage_type(out))
        with _each_row(rows, shape) as (row, threads):

            def computed(k: b.Expr) -> b.Buffer:
                width, place = shape.width, (row, k)
                loaded = [ln.read(source, place, width, "float32") for source in sources]
                values = ln.made(
                    width, lambda i: run_chain(REGISTERS, steps, [one[i] for one in loaded])
                )
                if result is not None:
                    ln.write(result, values, place, width, "float32")
                return values

            def write(k: b.Expr, values: b.Buffer) -> None:
                ln.write(y, values, (row, k), shape.width, out)

            _normalised(shape, threads, eps, w, computed, write)
    return kernel.function


@contextmanager
def _each_row(rows: b.Expr, shape: RowLayout) -> Iterator[tuple[b.Expr, ThreadGroup]]:
    """Launch the block for every row; rows of a warp go several to a block."""
    single = shape.threads == b.WARP
    per_block = WARPS if single else 1
    with b.launch([b.ceildiv(rows, per_block)], per_block * shape.threads) as (block, thread):
        if not single:
            yield block, ThreadGroup(thread, shape.threads)
            return
        row = b.index(block * WARPS + T.Cast("int64", thread // b.WARP))
        with b.when(row < rows):
            yield row, ThreadGroup(thread % b.WARP, b.WARP)


def _normalised(
    shape: RowLayout,
    threads: ThreadGroup,
    eps: float,
    w: b.Buffer,
    read: Callable[[b.Expr], b.Buffer],
    write: Callable[[b.Expr, b.Buffer], None],
) -> None:
    """One row: read into registers, squared and added up, then scaled and written."""
    kept, squares = b.scratch((shape.pieces * shape.width,)), b.cell()
    squares.set(T.float32(0))

    def load(offset: int, k: b.Expr) -> None:
        values = read(k)
        with T.unroll(b.int32(shape.width)) as lane:
            b.store(kept, values[lane], (offset + lane,))
            squares.add(kept[offset + lane] * kept[offset + lane])

    shape.each(threads.lane, load)
    total = threads.reduce(squares.value, b.add, rolled=False)
    scale = inverse_root(total / T.float32(shape.dim), eps)

    def finish(offset: int, k: b.Expr) -> None:
        weights = ln.read(w, (k,), shape.width, "float32")
        write(k, ln.made(shape.width, lambda i: kept[offset + i] * scale * weights[i]))

    shape.each(threads.lane, finish)
