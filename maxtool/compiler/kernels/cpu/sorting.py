"""The order of the elements of a row, by merging runs that are in order."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import elements as e
from maxtool.compiler.kernels.element_order import above


def sorted_places(dtype: str, ascending: bool) -> b.PrimFunc:
    """Build where the elements of each row are in order, the first of equal ones first.

    Parameters of the kernel: x[rows, n] of ``dtype``, y[rows, n] int64. NaN is above every number.
    """
    compute_dtype = e.compute_type(dtype)
    with b.kernel(f"argsort_{dtype}") as kernel:
        rows, n = kernel.dim("rows"), kernel.dim("n")
        x = kernel.argument("x", (rows, n), e.storage_type(dtype))
        y = kernel.argument("y", (rows, n), "int64")
        merged = b.workspace((rows, n), "int64")

        def row(i: b.Expr) -> None:
            def value(position: b.Expr) -> b.Expr:
                return b.let(e.read(x, (i, b.least(position, n - 1)), dtype))

            def second_first(left: b.Expr, right: b.Expr) -> b.Expr:
                first, second = value(left), value(right)
                return (
                    above(first, second, compute_dtype)
                    if ascending
                    else above(second, first, compute_dtype)
                )

            run = b.cell(b.integer(1))
            with T.serial(n) as k:
                b.store(y, k, (i, k))
            with T.While(run.value < n):
                with T.serial(T.truncdiv(n + 2 * run.value - 1, 2 * run.value)) as pair:
                    start = b.index(pair * 2 * run.value)
                    _merge(y, merged, i, (start, run.value, n), second_first)
                with T.serial(n) as k:
                    b.store(y, merged[i, k], (i, k))
                run.set(run.value * 2)

        b.each_row(rows, 16 * n, row)
    return kernel.function


def _merge(y: b.Buffer, merged: b.Buffer, i: b.Expr, where: Any, second_first: Any) -> None:  # noqa: ANN401
    """Merge the runs ``y[i, start : start + run]`` and the one after it."""
    start, run, n = where
    middle, end = b.index(b.least(start + run, n)), b.index(b.least(start + 2 * run, n))
    left, right = b.scratch((1,), "int64"), b.scratch((1,), "int64")
    b.store(left, start, (0,))
    b.store(right, middle, (0,))
    with T.serial(end - start) as step:
        one = b.index(y[i, b.least(left[0], n - 1)])
        two = b.index(y[i, b.least(right[0], n - 1)])
        ahead = tirx.any(left[0] >= middle, second_first(one, two))
        take_right = tirx.all(right[0] < end, ahead)

        def take(position: b.Expr, side: b.Buffer) -> None:
            b.store(merged, position, (i, start + step))
            b.store(side, side[0] + 1, (0,))

        b.either(take_right, lambda: take(two, right), lambda: take(one, left))
