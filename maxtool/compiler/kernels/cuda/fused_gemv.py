"""Products of a decode step: several of one input in a launch, and the activation of a gate.

A launch takes some microseconds to begin and to end, in which little is read, and small matrices
do not fill a GPU. Products of one input are blocks of one launch. Where what computes x has not
rounded it to the type of the weights, every block does: that costs less than a launch of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import gemv
from maxtool.compiler.kernels.cuda.backend import REGISTERS
from maxtool.compiler.kernels.cuda.gemv import Epilogue
from maxtool.compiler.kernels.cuda.gemv_products import ChunkProduct, Float32, TensorCores
from maxtool.compiler.kernels.cuda.matrix import Matrix
from maxtool.compiler.kernels.cuda.product_output import Operand, Output
from maxtool.compiler.kernels.kernel_options import ChainStep, adding
from maxtool.compiler.kernels.pointwise import run_chain

# Multiplies the rows of a block by columns of some matrices, and calls an epilogue.
Multiply: TypeAlias = Callable[[Sequence[Matrix], Epilogue], None]


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
    """
    suffix = "" if aligned else "_unaligned"
    with b.kernel(f"linears_{len(biases)}_{weight_dtype}{suffix}") as kernel:
        x = _rows(kernel, "float32" if rounds else weight_dtype, aligned)
        sizes = [kernel.dim(f"n{index}") for index in range(len(biases))]
        weights = [
            _weights(kernel, index, (n, x.terms), (weight_dtype, aligned, biases[index]))
            for index, n in enumerate(sizes)
        ]
        operands = [bias for _, bias in weights]
        if residual:
            more = kernel.argument("residual", (x.rows, sizes[-1]))
            operands[-1] = (*operands[-1], Operand(more, is_row=False))
        outputs = [
            Output(kernel.argument(f"y{index}", (x.rows, n)), x.rows, n, each, adding(len(each)))
            for index, (n, each) in enumerate(zip(sizes, operands, strict=True))
        ]

        def block(multiply: Multiply, product: b.Expr) -> None:
            def epilogue(row: b.Expr, column: b.Expr, sums: Sequence[b.Expr]) -> None:
                for index, output in enumerate(outputs):
                    with b.when(product == index):
                        output.store(row, column, sums)

            multiply([_chosen([matrix for matrix, _ in weights], product)], epilogue)

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
        products = [Output(y, x.rows, n, bias, adding(len(bias))) for _, bias in weights]

        def epilogue(row: b.Expr, column: b.Expr, sums: Sequence[b.Expr]) -> None:
            with b.when(row < x.rows), b.when(column < n):
                both = zip(products, sums, strict=True)
                values = [b.let(one.value(row, column, value)) for one, value in both]
                b.store(y, b.to_storage(run_chain(REGISTERS, steps, values), out), (row, column))

        def block(multiply: Multiply, _product: b.Expr) -> None:
            multiply([matrix for matrix, _ in weights], epilogue)

        _launch(x, ([n], len(weights)), weight_dtype, shared_memory, block)
    return kernel.function


def _rows(kernel: b.Kernel, dtype: str, aligned: bool) -> Matrix:
    shape = kernel.dim("rows"), kernel.dim("k")
    return Matrix.argument(kernel, "x", shape, dtype, aligned=aligned)


def _weights(
    kernel: b.Kernel, index: int, shape: tuple[b.Expr, b.Expr], options: tuple[str, bool, bool]
) -> tuple[Matrix, tuple[Operand, ...]]:
    """The parameters of one product: its weights, and its bias if it has one."""
    dtype, aligned, bias = options
    w = Matrix.argument(kernel, f"w{index}", shape, dtype, aligned=aligned)
    if not bias:
        return w, ()
    return w, (Operand(kernel.argument(f"bias{index}", shape[:1]), is_row=True),)


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
    block: Callable[[Multiply, b.Expr], None],
) -> None:
    """Blocks for the columns of all products; those of the same columns are next to each other."""
    sizes, matrices = products

    def with_form(form: ChunkProduct) -> None:
        groups = b.ceildiv(x.rows, form.rows)
        ends = [b.integer(0)]
        for size in sizes:
            ends.append(ends[-1] + groups * b.ceildiv(size, form.columns))
        with b.launch([ends[-1]], form.threads, form.min_blocks_per_sm) as (at, thread):
            passed = (T.Cast("int32", at >= end) for end in ends[1:-1])
            product = b.let(sum(passed, start=b.int32(0)))
            block_of = b.index(at - _select(product, ends[:-1]))
            column = b.index(b.block_quotient(block_of, groups))
            row = b.index((block_of - column * groups) * form.rows)
            memory = gemv.shared_stages(form, matrices, shared_memory)
            corner = row, b.index(column * form.columns)

            def multiply(weights: Sequence[Matrix], epilogue: Epilogue) -> None:
                whole = gemv.from_corner(corner, epilogue)
                gemv.gemv_block(form, x, weights, corner, thread, whole, memory)

            block(multiply, product)

    if weight_dtype != "float32":
        with_form(TensorCores(rounds=x.dtype != weight_dtype))
        return
    b.either(x.rows == 1, lambda: with_form(Float32(rows=1)), lambda: with_form(Float32(rows=4)))
