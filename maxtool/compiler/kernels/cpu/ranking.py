"""The largest elements of a row, in order."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T  # noqa: N812

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import elements as e
from maxtool.compiler.kernels.ordering import above, equal


def top_rows(dtype: str, count: int) -> Any:  # noqa: ANN401
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
            last, best = b.scratch((1,), kind), b.scratch((1,), kind)
            before, place = b.scratch((1,), "int64"), b.scratch((1,), "int64")
            b.store(before, b.integer(-1), (0,), 1)
            with T.serial(b.integer(count)) as rank:
                b.store(place, b.integer(-1), (0,), 1)
                with T.serial(n) as k:
                    value = b.let(e.read(x, (i, k), 1, dtype), 1, kind)
                    same = tirx.all(equal(value, last[0], kind), k > before[0])
                    left = tirx.any(before[0] < 0, above(last[0], value, kind), same)
                    ahead = tirx.any(place[0] < 0, above(value, best[0], kind))
                    with b.when(tirx.all(left, ahead)):
                        b.store(best, value, (0,), 1)
                        b.store(place, k, (0,), 1)
                b.store(last, best[0], (0,), 1)
                b.store(before, place[0], (0,), 1)
                b.store(y, place[0], (i, rank), 1)

        b.each_row(rows, n * count, row)
    return made.function
