"""Indices of the elements that were counted: a thread for each."""

from __future__ import annotations

from maxtool.compiler.kernels.counted import Arguments
from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda.rows import each_element


def nonzero_places(rank: int) -> b.PrimFunc:
    """Build the kernel of :class:`Arguments` for elements in so many dimensions."""
    with b.kernel(f"nonzero_{rank}") as made:
        arguments = Arguments(made, rank)
        with each_element(arguments.m) as (row,):
            arguments.write(row)
    return made.function
