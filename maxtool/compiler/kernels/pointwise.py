"""A chain of elementwise operations on tensors of one shape, as one kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan

from tvm.tirx.script.builder import ir as T

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
        bounds = [one for one in step.operands if isinstance(one, str)]
        if step.op in BOUNDS and bounds and not isnan(float.fromhex(bounds[0])):
            (value,) = (known[one] for one in step.operands if isinstance(one, int))
            known.append(b.let(BOUNDS[step.op](value, m.number(float.fromhex(bounds[0])))))
        else:
            known.append(b.let(CHAINED[step.op](m, *operands)))
    return known[-1]


# The same beside a number that is none but itself: one instruction, which leaves NaN as it is.
BOUNDS: dict[str, Callable[[b.Expr, b.Expr], b.Expr]] = {
    "maximum": lambda value, bound: T.Select(value < bound, bound, value),
    "minimum": lambda value, bound: T.Select(bound < value, bound, value),
}


def pointwise(
    backend: Backend,
    dim: int,
    inputs: int,
    steps: Sequence[ChainStep],
    columns: tuple[bool, ...] = (),
    out: str = "float32",
    types: tuple[str, ...] = (),
) -> b.PrimFunc:
    """Build the chain; its last step is the result.

    Parameters of the kernel: each input [rows, dim], or [dim] if it is among the ``columns``, of
    float32 unless there are ``types``; y[rows, dim] of type ``out``.
    """
    name = "_".join(dict.fromkeys(step.op for step in steps)) or "cast"
    types = types or ("float32",) * inputs
    with b.kernel(f"{name}_{dim}_{out}") as kernel:
        rows = kernel.dim("rows")
        shapes = [(dim,) if one_row else (rows, dim) for one_row in columns or (False,) * inputs]
        sources = [
            kernel.argument(f"x{i}", shape, dtype)
            for i, (shape, dtype) in enumerate(zip(shapes, types, strict=True))
        ]
        y = kernel.argument("y", (rows, dim), e.storage_type(out))

        def chain(m: Arithmetic, *elements: b.Expr) -> b.Expr:
            return run_chain(m, steps, elements)

        def vector(row: b.Expr, k: b.Index, width: int) -> None:
            places = [(row, k)[-len(shape) :] for shape in shapes]
            loaded = [
                backend.load_vector(source, place, width, dtype)
                for source, place, dtype in zip(sources, places, types, strict=True)
            ]
            backend.store_vector(y, backend.compute(chain, loaded, width), (row, k), width, out)

        backend.each_vector(rows, dim, vector, work=HEAVY)
    return kernel.function
