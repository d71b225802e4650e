"""What the experts that a row has chosen make of it, added up."""

from __future__ import annotations

from typing import Any

from tvm.tirx.script.builder import ir as T  # noqa: N812

from maxtool.compiler.kernels.cuda import builder as b

THREADS = 256


def weighted_sum() -> Any:  # noqa: ANN401
    """Build ``y[i] = sum(shares[i, s] * x[i, s] for s)``, added up in that order.

    Parameters of the kernel: x[rows, used, n], shares[rows, used], y[rows, n], all float32.
    """
    with b.kernel("weighted_sum") as made:
        rows, used, n = made.dim("rows"), made.dim("used"), made.dim("n")
        x = made.argument("x", (rows, used, n))
        shares = made.argument("shares", (rows, used))
        y = made.argument("y", (rows, n))
        parts = b.ceildiv(n, THREADS)
        with b.launch([rows * parts], THREADS) as (block, thread):
            row = b.index(b.quotient(block, parts))
            column = b.index((block - row * parts) * THREADS + thread)
            with b.when(column < n):
                total = b.scratch((1,))
                b.store(total, T.float32(0), (0,), 1)
                with T.serial(used) as s:
                    b.store(total, total[0] + x[row, s, column] * shares[row, s], (0,), 1)
                b.store(y, total[0], (row, column), 1)
    return made.function
