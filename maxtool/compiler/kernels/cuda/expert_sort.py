"""Sorting of rows by the experts they have chosen, on the device alone."""

from __future__ import annotations

from typing import Any

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b

THREADS = 256


def expert_order(experts: int) -> b.PrimFunc:
    """Build the sorting of choices by expert, those of one in their order.

    Parameters of the kernel: chosen[choices] int64, starts[experts + 1] int64: where those of each
    expert begin, and how many there are in all; order[choices] int64. A number that is no expert's
    is taken for the first or last one.

    A block for each expert looks at all choices, twice: it counts those of experts before its own,
    and each thread those of a part that are its own, and then writes the places of the latter.
    """
    with b.kernel(f"expert_order_{experts}") as kernel:
        choices = kernel.dim("choices")
        chosen = kernel.argument("chosen", (choices,), "int64")
        starts = kernel.argument("starts", (experts + 1,), "int64")
        order = kernel.argument("order", (choices,), "int64")
        with b.launch([experts], THREADS) as (expert, thread):
            counts = b.shared((2, THREADS), "int32")
            part = b.index(b.ceildiv(choices, THREADS))
            first = b.index(part * thread)
            last = b.index(b.least(first + part, choices))

            def mine(i: b.Expr) -> b.Expr:
                return b.index(b.clamped(chosen[i], experts))

            _count(counts, (expert, thread), (first, last), mine)
            b.barrier()
            start = _sum(counts, 0, THREADS)
            with b.when(thread == 0):
                b.store(starts, start, (expert,))
                b.store(starts, choices, (experts,))
            at = b.cell(start + _sum(counts, 1, thread))
            with T.serial(first, last) as i, b.when(mine(i) == expert):
                b.store(order, i, (at.value,))
                at.add(1)
    return kernel.function


def _count(
    counts: b.Buffer,
    part_index: tuple[b.Expr, b.Expr],
    part: tuple[b.Expr, b.Expr],
    mine: Any,  # noqa: ANN401
) -> None:
    """Count the choices of a part that belong to earlier experts, and to this one."""
    expert, thread = part_index
    found = b.scratch((2,), "int32")
    for index in range(2):
        b.store(found, b.int32(0), (index,))
    with T.serial(*part) as i:
        chosen = mine(i)
        for index, is_so in enumerate((chosen < expert, chosen == expert)):
            b.store(found, found[index] + T.Cast("int32", is_so), (index,))
    for index in range(2):
        b.store(counts, found[index], (index, thread))


def _sum(counts: b.Buffer, row: int, end: b.Index) -> b.Expr:
    """The sum of the counts of the first ``end`` threads."""
    total = b.cell(b.int32(0))
    with T.serial(b.int32(end) if isinstance(end, int) else end, unroll=4) as i:
        total.add(counts[row, i])
    return T.Cast("int64", total.value)
