"""Indices of the elements that were counted."""

from __future__ import annotations

from maxtool.compiler.kernels.counted import Arguments
from maxtool.compiler.kernels.cpu import builder as b

WORK = 64  # of one row: halvings, each a read


def nonzero_places(rank: int) -> b.PrimFunc:
    """Build the kernel of :class:`Arguments` for elements in so many dimensions."""
    with b.kernel(f"nonzero_{rank}") as made:
        arguments = Arguments(made, rank)
        b.each_row(arguments.m, WORK, arguments.write)
    return made.function
