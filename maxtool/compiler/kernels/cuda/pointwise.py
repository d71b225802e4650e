"""A chain of elementwise operations on tensors of one shape, as one kernel.

The functions are CUDA's own in float32, without --use_fast_math: by the table of the CUDA C++
programming guide (appendix on mathematical functions) expf, tanhf and division are within 2 units
in the last place, erfcf within 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi, sqrt

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import elements as e
from maxtool.compiler.kernels.cuda import lanes as ln
from maxtool.compiler.kernels.forms import Step
from maxtool.compiler.kernels.ordering import maximum, minimum

THREADS = 256


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
                results = ln.made(lanes, lambda i: run_chain(steps, [one[i] for one in loaded]))
                ln.write(y, results, place, lanes, out)
    return made.function


def run_chain(steps: Sequence[Step], values: Sequence[b.Expr]) -> b.Expr:
    """The result of a chain on one element of each input."""
    known = list(values)
    for step in steps:
        operands = [_operand(known, operand) for operand in step.operands]
        known.append(b.let(SCALAR_OPS[step.op](*operands)))
    return known[-1]


def _operand(values: Sequence[b.Expr], operand: int | str) -> b.Expr:
    return values[operand] if isinstance(operand, int) else _number(float.fromhex(operand))


def _number(value: float) -> b.Expr:
    return tirx.const(value, "float32")


def sigmoid(x: b.Expr) -> b.Expr:
    """``1 / (1 + exp(-x))`` from exp(-abs(x)), which cannot overflow."""
    negative = x < _number(0)
    e = b.let(T.exp(T.Select(negative, x, _number(-0.0) - x)))
    return T.Select(negative, e, _number(1)) / (_number(1) + e)


def _gelu(x: b.Expr) -> b.Expr:
    """``x`` times the normal distribution function, which is ``erfc(-x / sqrt(2)) / 2``."""
    below = tirx.call_pure_extern("float32", "erfcf", x * _number(-sqrt(0.5)))
    return x * (_number(0.5) * below)


def _gelu_tanh(x: b.Expr) -> b.Expr:
    """By ``(1 + tanh(u)) / 2 == sigmoid(2 u)``."""
    inner = x * (_number(1) + _number(0.044715) * x * x)
    return x * sigmoid(b.let(_number(2 * sqrt(2 / pi)) * inner))


SCALAR_OPS: dict[str, Callable[..., b.Expr]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "maximum": maximum,
    "minimum": minimum,
    "negative": lambda x: _number(-0.0) - x,
    "relu": lambda x: T.Select(x < _number(0), _number(0), x),
    "sqrt": T.sqrt,
    "gelu": _gelu,
    "gelu_quick": lambda x: x * sigmoid(b.let(_number(1.702) * x)),
    "gelu_tanh": _gelu_tanh,
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "tanh": T.tanh,
}
