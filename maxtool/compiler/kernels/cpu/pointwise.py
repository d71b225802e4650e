"""A chain of elementwise operations on tensors of one shape, as one kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import special
from maxtool.compiler.kernels.forms import Step
from maxtool.compiler.kernels.ordering import maximum, minimum
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
                for step in steps:
                    operands = [_operand(values, operand, lanes) for operand in step.operands]
                    values.append(b.let(VECTOR_OPS[step.op](lanes, *operands)))
                b.store(y, values[-1], (i, offset), lanes)

            b.each_vector(dim, tile.lanes, vector)

        b.each_row(rows, HEAVY * dim, row)
    return made.function


def _operand(values: list[b.Expr], operand: int | str, lanes: int) -> b.Expr:
    if isinstance(operand, int):
        return values[operand]
    return b.splat(float.fromhex(operand), lanes)


def _relu(lanes: int, x: b.Expr) -> b.Expr:
    """``x`` unless it is less than 0, so that NaN stays."""
    zero = b.splat(0.0, lanes)
    return T.Select(x < zero, zero, x)


VECTOR_OPS: dict[str, Callable[..., b.Expr]] = {
    "add": lambda _lanes, x, y: x + y,
    "sub": lambda _lanes, x, y: x - y,
    "mul": lambda _lanes, x, y: x * y,
    "div": lambda _lanes, x, y: x / y,
    "maximum": lambda _lanes, x, y: maximum(x, y),
    "minimum": lambda _lanes, x, y: minimum(x, y),
    "negative": lambda lanes, x: b.splat(-0.0, lanes) - x,
    "relu": _relu,
    "sqrt": lambda _lanes, x: T.sqrt(x),
    "gelu": special.gelu,
    "gelu_quick": special.gelu_quick,
    "gelu_tanh": special.gelu_tanh,
    "sigmoid": special.sigmoid,
    "silu": lambda lanes, x: x * special.sigmoid(lanes, x),
    "tanh": special.tanh,
}
