"""Learned positions, and the angles of rotary ones."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Backend, RowThreads

FUNCTIONS = {"cos": T.cos, "sin": T.sin}

# A cosine costs about as much as this many additions.
COSINE = 32


def rope_angles(
    backend: Backend,
    half: int,
    original: int,
    factor: float,
    long_factor: float,
    function: str,
    by_row: bool = False,
) -> b.PrimFunc:
    """Build a table of cosines or sines whose frequencies depend on the sequence's length.

    Parameters of the kernel: frequencies[lengths, half], position[1] int32 of the first row,
    y[seq, half]. The sequence ends at ``position + seq``; the frequencies are those in row
    ``position + seq - original``, or in the first or last one. With ``by_row`` there are
    position[seq], each of a sequence that ends there. Results are multiplied by ``factor``, or by
    ``long_factor`` where the sequence is longer than ``original``.
    """
    with b.kernel(f"rope_{function}_{half}") as kernel:
        lengths, seq = kernel.dim("lengths"), kernel.dim("seq")
        frequencies = kernel.argument("frequencies", (lengths, half))
        position = kernel.argument("position", (seq if by_row else 1,), "int32")
        y = kernel.argument("y", (seq, half))

        def row(i: b.Expr, threads: RowThreads) -> None:
            first = b.index(T.Cast("int64", position[i if by_row else 0]))
            end = first + (1 if by_row else seq)
            length = b.index(b.clamped(end - b.integer(original), lengths))
            long = end > b.integer(original)
            scale = b.let(T.Select(long, T.float32(long_factor), T.float32(factor)))
            place = b.let(T.Cast("float32", first if by_row else first + i))

            def angle(j: b.Expr) -> None:
                value = FUNCTIONS[function](place * frequencies[length, j])
                b.store(y, value * scale, (i, j))

            threads.each(half, angle)

        backend.each_row(seq, half, row, dtypes=(), work=COSINE)
    return kernel.function


def add_positions(backend: Backend, hidden: int, weight_dtype: str) -> b.PrimFunc:
    """Build the sum of each token with the row of its position.

    Parameters of the kernel: x[batch, seq, hidden], table[positions, hidden] of ``weight_dtype``,
    position[1] int32 of the first token, y like x. Positions outside the table take its first or
    last row.
    """
    with b.kernel(f"add_positions_{hidden}_{weight_dtype}") as kernel:
        batch, seq, positions = kernel.dim("batch"), kernel.dim("seq"), kernel.dim("positions")
        x = kernel.argument("x", (batch, seq, hidden))
        table = kernel.argument("table", (positions, hidden), b.STORAGE[weight_dtype])
        position = kernel.argument("position", (1,), "int32")
        y = kernel.argument("y", (batch, seq, hidden))

        def row(token: b.Expr, threads: RowThreads) -> None:
            at, s = b.unravel(token, (batch, seq))
            place = b.index(b.clamped(T.Cast("int64", position[0]) + s, positions))

            def added(k: b.Index, width: int) -> None:
                terms = [
                    backend.load_vector(x, (at, s, k), width),
                    backend.load_vector(table, (place, k), width, weight_dtype),
                ]
                total = backend.compute(lambda _, x, y: x + y, terms, width)
                backend.store_vector(y, total, (at, s, k), width)

            threads.each_vector(hidden, added)

        backend.each_row(batch * seq, hidden, row, dtypes=("float32", weight_dtype))
    return kernel.function
