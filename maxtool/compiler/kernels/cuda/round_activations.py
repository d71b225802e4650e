"""Activations rounded to the type of the weights that they are multiplied with."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import vector_access as ln

THREADS = 256
WIDTH = 8  # values of a thread: 16 bytes of the result


def narrow(dtype: str) -> b.PrimFunc:
    """Build the cast of x[rows, dim] float32 to y[rows, dim], to the nearest, ties to even.

    The type of y is float16, or bfloat16 as its bits.
    """
    with b.kernel(f"narrow_{dtype}") as kernel:
        rows, dim = kernel.dim("rows"), kernel.dim("dim")
        x = kernel.argument("x", (rows, dim))
        y = kernel.argument("y", (rows, dim), b.STORAGE[dtype])
        count = rows * dim
        with b.launch([b.ceildiv(count, THREADS * WIDTH)], THREADS) as (block, thread):
            start = b.index((block * THREADS + thread) * WIDTH)
            # The rows lie one after the other: a place beyond the first is one in a later row.
            b.either(
                start + WIDTH <= count,
                lambda: _piece(x, y, start, dtype),
                lambda: _rest(x, y, (start, count), dtype),
            )
    return kernel.function


def _piece(x: b.Buffer, y: b.Buffer, start: b.Expr, dtype: str) -> None:
    numbers = b.scratch((WIDTH,))
    for half in range(0, WIDTH, 4):
        ln.load(numbers, (half,), (x, (0, start + half)), 4, "float32")
    ln.write(y, numbers, (0, start), WIDTH, dtype)


def _rest(x: b.Buffer, y: b.Buffer, places: tuple[b.Expr, b.Expr], dtype: str) -> None:
    start, count = places
    with T.serial(b.greatest(count - start, 0)) as offset:
        b.store(y, b.to_storage(x[0, start + offset], dtype), (0, start + offset))
