"""Drawing tokens on a GPU: a block for each row."""

from __future__ import annotations

from maxtool.compiler.kernels import sampling
from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda.rows import Team

THREADS = 512


def sample() -> b.PrimFunc:
    """Build the draw; see :class:`maxtool.compiler.kernels.sampling.Arguments`."""
    with b.kernel("sample") as made:
        row = sampling.Arguments(made)
        with b.launch([row.rows], THREADS) as (i, thread):
            place = row.drawn(i, Team(thread, THREADS))
            with b.when(thread == 0):
                b.store(row.token, place, (i, 0))
    return made.function
