"""Weighted sum of the outputs of the experts that each row has chosen."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Backend


def weighted_sum(backend: Backend) -> b.PrimFunc:
    """Build ``y[i] = sum(shares[i, s] * x[i, s] for s)``, added up in that order.

    Parameters of the kernel: x[rows, used, n], shares[rows, used], y[rows, n], all float32.
    """
    with b.kernel("weighted_sum") as kernel:
        rows, used, n = kernel.dim("rows"), kernel.dim("used"), kernel.dim("n")
        x = kernel.argument("x", (rows, used, n))
        shares = kernel.argument("shares", (rows, used))
        y = kernel.argument("y", (rows, n))

        def vector(i: b.Expr, k: b.Index, width: int) -> None:
            total = b.scratch((width,))
            b.store(total, b.splat(0.0, width), (0,), width)
            with T.serial(used) as s:
                part = backend.read(x, (i, s, k), "float32", width) * b.splat(shares[i, s], width)
                b.store(total, b.load(total, (0,), width) + part, (0,), width)
            backend.write(y, b.load(total, (0,), width), (i, k), "float32", width)

        backend.each_vector(rows, n, vector, work=used)
    return kernel.function
