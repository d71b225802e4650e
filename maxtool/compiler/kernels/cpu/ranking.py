"""The largest elements of a row, in order."""

from __future__ import annotations

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import elements as e
from maxtool.compiler.kernels.ordering import above, equal


def top_rows(dtype: str, count: int) -> b.PrimFunc:
    """Build where the ``count`` largest elements of each row are, the largest first.

    Parameters of the kernel: x[rows, n] of ``dtype``, y[rows, count] int64. Of equal elements the
    first comes first, and a NaN comes before every number. The row is read once for each of them.
    """
    kind = e.computed(dtype)
    with b.kernel(f"top_{count}_{dtype}") as made:
        rows, n = made.dim("rows"), made.dim("n")
        x = made.argument("x", (rows, n), e.stored(dtype))
        y = made.argument("y", (rows, count), "int64")

        def row(i: b.Expr) -> None:
            last, best = b.cell(dtype=kind), b.cell(dtype=kind)
            before, place = b.cell(dtype="int64"), b.cell(dtype="int64")
            before.set(b.integer(-1))
            with T.serial(b.integer(count)) as rank:
                place.set(b.integer(-1))
                with T.serial(n) as k:
                    value = b.let(e.read(x, (i, k), 1, dtype))
                    same = tirx.all(equal(value, last.value, kind), k > before.value)
                    left = tirx.any(before.value < 0, above(last.value, value, kind), same)
                    ahead = tirx.any(place.value < 0, above(value, best.value, kind))
                    with b.when(tirx.all(left, ahead)):
                        best.set(value)
                        place.set(k)
                last.set(best.value)
                before.set(place.value)
                b.store(y, place.value, (i, rank))

        b.each_row(rows, n * count, row)
    return made.function
