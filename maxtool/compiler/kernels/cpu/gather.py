"""Rows read at places that a tensor says."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b


def gather_rows(dtype: str, places: str) -> b.PrimFunc:
    """Build ``y[i, j, :] = x[i, at[j], :]``.

    Parameters of the kernel: x[outer, n, inner], at[m], y[outer, m, inner]. A negative place counts
    from the last; one that does not exist is read at the nearest end.

    Args:
        dtype: How an element is carried.
        places: The type of the places.
    """
    with b.kernel(f"gather_{dtype}") as made:
        outer, n, m, inner = (made.dim(name) for name in ("outer", "n", "m", "inner"))
        x = made.argument("x", (outer, n, inner), dtype)
        at = made.argument("at", (m,), places)
        y = made.argument("y", (outer, m, inner), dtype)

        def row(index: b.Expr) -> None:
            i, j = b.index(b.quotient(index, m)), b.index(b.remainder(index, m))
            place = b.index(b.greatest(b.least(b.from_first(at[j], n, places), n - 1), 0))
            with T.serial(inner) as k:
                b.store(y, x[i, place, k], (i, j, k))

        b.each_row(outer * m, inner, row)
    return made.function
