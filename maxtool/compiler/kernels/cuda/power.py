"""Whole numbers to the power of whole numbers."""

from __future__ import annotations

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda.rows import each_element
from maxtool.compiler.kernels.power import power


def integer_power(dtype: str) -> b.PrimFunc:
    """Build ``z[i] = x[i] ** y[i]``, which wraps around.

    Parameters of the kernel: x[n], y[n], z[n], all of ``dtype``.
    """
    with b.kernel(f"pow_{dtype}") as made:
        n = made.dim("n")
        x, y, z = (made.argument(name, (n,), dtype) for name in "xyz")
        with each_element(n) as (i,):
            b.store(z, power(x[i], y[i], dtype), (i,))
    return made.function
