"""Whole numbers to the power of whole numbers."""

from __future__ import annotations

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.power import BITS, power


def integer_power(dtype: str) -> b.PrimFunc:
    """Build ``z[i] = x[i] ** y[i]``, which wraps around.

    Parameters of the kernel: x[n], y[n], z[n], all of ``dtype``.
    """
    with b.kernel(f"pow_{dtype}") as made:
        n = made.dim("n")
        x, y, z = (made.argument(name, (n,), dtype) for name in "xyz")

        def element(i: b.Expr) -> None:
            b.store(z, power(x[i], y[i], dtype), (i,))

        b.each_row(n, 4 * BITS[dtype], element)
    return made.function
