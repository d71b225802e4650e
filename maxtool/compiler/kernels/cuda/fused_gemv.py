"""Products of a decode step: several of one input in a launch, and the activation of a gate.

A launch takes some microseconds to begin and to end, in which little is read, and small matrices
do not fill a GPU. Products of one input are blocks of one launch. Where what computes x has not
rounded it to the type of the weights, every block does: that costs less than a launch of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.chains import run_chain
from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda.backend import REGISTERS
from maxtool.compiler.kernels.cuda.gemv import (
    MIN_BLOCKS_PER_SM,
    THREADS,
    ChunkProduct,
    SharedStages,
    gemv_block,
    shared_stages,
)
from maxtool.compiler.kernels.cuda.gemv_products import Float32, TensorCores
from maxtool.compiler.kernels.cuda.matrix import Matrix
from maxtool.compiler.kernels.cuda.product_output import Output
from maxtool.compiler.kernels.kernel_options import ChainStep


@dataclass(frozen=True, slots=True)
class _Block:
    """Work of one block of a launch: its first row and column, and its thread."""

    form: ChunkProduct
    x: Matrix
    row: b.Expr
    column: b.Expr
    thread: b.Expr
    memory: SharedStages

    def multiply(self, weights: Sequence[Matrix], epilogue: Callable[..., None]) -> None:
        """Multiply the block's rows by columns of each matrix, and call ``epilogue``."""

        def at(row: b.Expr, column: b.Expr, sums: Sequence[b.Expr]) -> None:
            epilogue(b.index(self.row + row), b.index(self.column + column), sums)

        first = self.row, self.column
        gemv_block(self.form, self.x, weights, first, self.thread, at, self.memory)


def linears(
    shared_memory: int,
    weight_dtype: str,
    biases: Sequence[bool],
    residual: bool = False,
    *,
    aligned: bool,
    rounds: bool = False,
) -> b.PrimFunc:
    """Build ``y = x @ w.T (+ bias) (+ residual)`` for several weights, for few rows.

    Parameters of the kernel: x[rows, k]; w[n, k] of each product, followed by its bias[n]
    float32 if it has one; residual[rows, n] float32 of the last product if asked for; y[rows, n]
    float32 of each product.

    Args:
        shared_memory: Bytes that a block may have.
        weight_dtype: float32, float16, or bfloat16 (passed as uint16 bits).
        biases: Whether there is one, for each product.
        residual: Whether the last product has one.
        aligned: Whether k is a multiple of 16 bytes of weights.
        rounds: Whether x is float32 and rounded here; else it has the type of the weights.
    """
    suffix = "" if aligned else "_unaligned"
    with b.kernel(f"linears_{len(biases)}_{weight_dtype}{suffix}") as kernel:
        x = _rows(kernel, "float32" if rounds else weight_dtype, aligned)
        sizes = [kernel.dim(f"n{index}") for index in range(len(biases))]
        weights = [
            _weights(kernel, index, (n, x.terms), (weight_dtype, aligned, biases[index]))
            for index, n in enumerate(sizes)
        ]
        more: list[b.Buffer | None] = [None] * len(sizes)
        if residual:
            more[-1] = kernel.argument("residual", (x.rows, sizes[-1]))
        outputs = [
            Output(kernel.argument(f"y{index}", (x.rows, n)), x.rows, n, bias, more[index])
            for index, (n, (_, bias)) in enumerate(zip(sizes, weights, strict=True))
        ]

        def block(here: _Block, product: b.Expr) -> None:
            def epilogue(row: b.Expr, column: b.Expr, sums: Sequence[b.Expr]) -> None:
                for index, output in enumerate(outputs):
                    with b.when(product == index):
                        output.store(row, column, sums[0])

            here.multiply([_chosen([matrix for matrix, _ in weights], product)], epilogue)

        _launch(x, (sizes, 1), weight_dtype, shared_memory, block)
    return kernel.function


def gated_linear(
    shared_memory: int,
    weight_dtype: str,
    steps: Sequence[ChainStep],
    biases: tuple[bool, bool],
    *,
    aligned: bool,
    rounds: bool = False,
    out: str = "float32",
) -> b.PrimFunc:
    """Build a chain of operations on ``x @ gate.T`` and ``x @ up.T``, for few rows.

    Parameters of the kernel: x[rows, k]; gate[n, k] and its bias[n] float32 if it has one; up[n, k]
    and its bias; y[rows, n] of type ``out``.

    Args:
        shared_memory: Bytes that a block may have.
        weight_dtype: float32, float16, or bfloat16 (passed as uint16 bits).
        steps: The chain, whose inputs are the two products.
        biases: Whether the products have one each.
        aligned: Whether k is a multiple of 16 bytes of weights.
        rounds: Whether x is float32 and rounded here; else it has the type of the weights.
        out: float32, or the 16-bit type that the result is rounded to.
    """
    suffix = "" if aligned else "_unaligned"
    with b.kernel(f"gated_linear_{steps[0].op}_{weight_dtype}{suffix}") as kernel:
        x = _rows(kernel, "float32" if rounds else weight_dtype, aligned)
        n = kernel.dim("n")
        weights = [
            _weights(kernel, index, (n, x.terms), (weight_dtype, aligned, bias))
            for index, bias in enumerate(biases)
        ]
        y = kernel.argument("y", (x.rows, n), b.STORAGE[out])
        products = [Output(y, x.rows, n, bias) for _, bias in weights]

        def epilogue(row: b.Expr, column: b.Expr, sums: Sequence[b.Expr]) -> None:
            with b.when(row < x.rows), b.when(column < n):
                both = zip(products, sums, strict=True)
                values = [b.let(one.with_bias(column, value)) for one, value in both]
                b.store(y, b.to_storage(run_chain(REGISTERS, steps, values), out), (row, column))

        def block(here: _Block, _product: b.Expr) -> None:
            here.multiply([matrix for matrix, _ in weights], epilogue)

        _launch(x, ([n], len(weights)), weight_dtype, shared_memory, block)
    return kernel.function


def _rows(kernel: b.Kernel, dtype: str, aligned: bool) -> Matrix:
    rows, k = kernel.dim("rows"), kernel.dim("k")
    return Matrix(kernel.argument("x", (rows, k), b.STORAGE[dtype]), rows, k, dtype, aligned)


def _weights(
    kernel: b.Kernel, index: int, shape: tuple[b.Expr, b.Expr], options: tuple[str, bool, bool]
) -> tuple[Matrix, b.Buffer | None]:
    """The parameters of one product: its weights, and its bias if it has one."""
    (n, k), (dtype, aligned, bias) = shape, options
    w = kernel.argument(f"w{index}", (n, k), b.STORAGE[dtype])
    added = kernel.argument(f"bias{index}", (n,)) if bias else None
    return Matrix(w, n, k, dtype, aligned), added


def _chosen(matrices: Sequence[Matrix], index: b.Expr) -> Matrix:
    """One of several matrices with rows of one length."""
    first, *more = matrices
    others = tuple((index == number, one.buffer) for number, one in enumerate(more, 1))
    rows = b.index(_select(index, [matrix.rows for matrix in matrices]))
    return replace(first, rows=rows, others=others)


def _select(index: b.Expr, values: Sequence[b.Expr]) -> b.Expr:
    """One of several numbers."""
    first_value, *more = values
    for number, value in enumerate(more, 1):
        first_value = T.Select(index == number, value, first_value)
    return first_value


def _launch(
    x: Matrix,
    products: tuple[Sequence[b.Expr], int],
    weight_dtype: str,
    shared_memory: int,
    block: Callable[[_Block, b.Expr], None],
) -> None:
    """Blocks for the columns of all products; those of the same columns are next to each other.

    Args:
        shared_memory: Bytes that a block may have.
        x: The rows.
        products: How many columns each product has, and how many matrices it takes.
        weight_dtype: Their type.
        block: Emits what a block does; takes the index of its product.
    """
    sizes, matrices = products

    def with_form(form: ChunkProduct) -> None:
        groups = b.ceildiv(x.rows, form.rows)
        ends = [b.integer(0)]
        for size in sizes:
            ends.append(ends[-1] + groups * b.ceildiv(size, form.columns))
        with b.launch([ends[-1]], THREADS, min_blocks_per_sm=MIN_BLOCKS_PER_SM) as (at, thread):
            passed = (T.Cast("int32", at >= end) for end in ends[1:-1])
            product = b.let(sum(passed, start=b.int32(0)))
            block_of = b.index(at - _select(product, ends[:-1]))
            column = b.index(b.block_quotient(block_of, groups))
            row = b.index((block_of - column * groups) * form.rows)
            memory = shared_stages(form, matrices, shared_memory)
            corner = row, b.index(column * form.columns)
            block(_Block(form, x, *corner, thread, memory), product)

    if weight_dtype != "float32":
        with_form(TensorCores(rounds=x.dtype != weight_dtype))
        return
    b.either(x.rows == 1, lambda: with_form(Float32(rows=1)), lambda: with_form(Float32(rows=4)))
