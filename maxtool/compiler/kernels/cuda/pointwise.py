"""A chain of elementwise operations on tensors of one shape, as one kernel."""

from __future__ import annotations

from collections.abc import Sequence

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.chains import run_chain
from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import elements as e
from maxtool.compiler.kernels.cuda import lanes as ln
from maxtool.compiler.kernels.forms import Step
from maxtool.compiler.kernels.formulas import Scalars

THREADS = 256
# What a thread computes with.
REGISTERS = Scalars("float32", in_registers=True)


def pointwise(dim: int, inputs: int, steps: Sequence[Step], out: str = "float32") -> b.PrimFunc:
    """Build the chain; its last step is the result.

    Parameters of the kernel: each input [rows, dim] float32, y[rows, dim] of type ``out``. A thread
    computes as many neighbours as fit into 16 bytes and divide a row.
    """
    name = "_".join(dict.fromkeys(step.op for step in steps))
    lanes = ln.widest("float32", dim)
    across = dim // lanes
    with b.kernel(f"{name}_{dim}_{out}") as made:
        rows = made.dim("rows")
        sources = [made.argument(f"x{index}", (rows, dim)) for index in range(inputs)]
        y = made.argument("y", (rows, dim), e.stored(out))
        count = rows * across
        with b.launch([b.ceildiv(count, THREADS)], THREADS) as (block, thread):
            at = b.index(block * THREADS + T.Cast("int64", thread))
            with b.when(at < count):
                row = b.index(b.quotient(at, across))
                place = (row, b.index((at - row * across) * lanes))
                loaded = [ln.read(source, place, lanes, "float32") for source in sources]
                results = ln.made(
                    lanes, lambda i: run_chain(REGISTERS, steps, [one[i] for one in loaded])
                )
                ln.write(y, results, place, lanes, out)
    return made.function
