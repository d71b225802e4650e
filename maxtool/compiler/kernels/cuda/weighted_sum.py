"""Weighted sum of the outputs of the experts that each row has chosen."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b

THREADS = 256


def weighted_sum() -> b.PrimFunc:
    """Build ``y[i] = sum(shares[i, s] * x[i, s] for s)``, added up in that order.

    Parameters of the kernel: x[rows, used, n], shares[rows, used], y[rows, n], all float32.
    """
    with b.kernel("weighted_sum") as kernel:
        rows, used, n = kernel.dim("rows"), kernel.dim("used"), kernel.dim("n")
        x = kernel.argument("x", (rows, used, n))
        shares = kernel.argument("shares", (rows, used))
        y = kernel.argument("y", (rows, n))
        parts = b.ceildiv(n, THREADS)
        with b.launch([rows * parts], THREADS) as (block, thread):
            row = b.index(b.quotient(block, parts))
            column = b.index((block - row * parts) * THREADS + thread)
            with b.when(column < n):
                total = b.cell(T.float32(0))
                with T.serial(used) as s:
                    total.add(x[row, s, column] * shares[row, s])
                b.store(y, total.value, (row, column))
    return kernel.function
