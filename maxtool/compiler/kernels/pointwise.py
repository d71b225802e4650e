"""A chain of elementwise operations on tensors of one shape, as one kernel."""

from __future__ import annotations

from collections.abc import Sequence

from maxtool.compiler.kernels import element_types as e
from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Backend
from maxtool.compiler.kernels.formulas import CHAINED, Arithmetic
from maxtool.compiler.kernels.kernel_options import ChainStep

# Operations that cost about as much as this many additions.
HEAVY = 8


def run_chain(m: Arithmetic, steps: Sequence[ChainStep], values: Sequence[b.Expr]) -> b.Expr:
    """Compute a chain, each of whose steps is one of ``CHAINED``, from its inputs."""
    known = list(values)
    for step in steps:
        operands = [
            known[operand] if isinstance(operand, int) else m.number(float.fromhex(operand))
            for operand in step.operands
        ]
        known.append(b.let(CHAINED[step.op](m, *operands)))
    return known[-1]


def pointwise(
    backend: Backend,
    dim: int,
    inputs: int,
    steps: Sequence[ChainStep],
    columns: tuple[bool, ...] = (),
    out: str = "float32",
) -> b.PrimFunc:
    """Build the chain; its last step is the result.

    Parameters of the kernel: each input [rows, dim] float32, or [dim] if it is among the
    ``columns``; y[rows, dim] of type ``out``.
    """
    name = "_".join(dict.fromkeys(step.op for step in steps))
    with b.kernel(f"{name}_{dim}_{out}") as kernel:
        rows = kernel.dim("rows")
        shapes = [(dim,) if one_row else (rows, dim) for one_row in columns or (False,) * inputs]
        sources = [kernel.argument(f"x{i}", shape) for i, shape in enumerate(shapes)]
        y = kernel.argument("y", (rows, dim), e.storage_type(out))

        def chain(m: Arithmetic, *elements: b.Expr) -> b.Expr:
            return run_chain(m, steps, elements)

        def vector(row: b.Expr, k: b.Index, width: int) -> None:
            places = [(row, k)[-len(shape) :] for shape in shapes]
            loaded = [
                backend.load_vector(source, place, width)
                for source, place in zip(sources, places, strict=True)
            ]
            backend.store_vector(y, backend.compute(chain, loaded, width), (row, k), width, out)

        backend.each_vector(rows, dim, vector, work=HEAVY)
    return kernel.function
