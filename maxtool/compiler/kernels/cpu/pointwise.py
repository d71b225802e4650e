"""A chain of elementwise operations on tensors of one shape, as one kernel."""

from __future__ import annotations

from collections.abc import Sequence

from maxtool.compiler.kernels.chains import run_chain
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.special import Vectors
from maxtool.compiler.kernels.forms import Step
from maxtool.compiler.target import Tile

# Operations that cost about as much as this many additions.
HEAVY = 8


def pointwise(tile: Tile, dim: int, inputs: int, steps: Sequence[Step]) -> b.PrimFunc:
    """Build the chain; its last step is the result.

    Parameters of the kernel: each input [rows, dim], y[rows, dim], all float32.
    """
    name = "_".join(dict.fromkeys(step.op for step in steps))
    with b.kernel(f"{name}_{dim}") as made:
        rows = made.dim("rows")
        sources = [made.argument(f"x{index}", (rows, dim)) for index in range(inputs)]
        y = made.argument("y", (rows, dim))

        def row(i: b.Expr) -> None:
            def vector(offset: b.Index, lanes: int) -> None:
                values = [b.let(b.load(source, (i, offset), lanes)) for source in sources]
                b.store(y, run_chain(Vectors(lanes), steps, values), (i, offset), lanes)

            b.each_vector(dim, tile.lanes, vector)

        b.each_row(rows, HEAVY * dim, row)
    return made.function
