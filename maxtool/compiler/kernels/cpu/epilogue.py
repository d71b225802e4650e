"""Epilogues: what becomes of the sums of products before they are stored, for all linear kernels.

A kernel may have several results, each of one product or of two, whose matrices and other operands
follow each other in its parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.special_functions import Vectors
from maxtool.compiler.kernels.formulas import CHAINED
from maxtool.compiler.kernels.kernel_options import Epilogue, EpilogueStep

# A row of sums, of the columns of a block: memory, and the indices before that of a column.
Sums: TypeAlias = tuple[b.Buffer, tuple[b.Index, ...]]


@dataclass(frozen=True, slots=True)
class Output:
    """One result of a kernel of products.

    Attributes:
        y: [rows, n], with the matrices of a batch before these.
        biases: [n] of each product, or None.
        rows: The tensors of the shape of y that the epilogue reads.
        steps: The operations of the epilogue.
        at: Which matrix of a batch it is.
    """

    y: b.Buffer
    biases: tuple[b.Buffer | None, ...] = (None,)
    rows: tuple[b.Buffer, ...] = ()
    steps: tuple[EpilogueStep, ...] = ()
    at: tuple[b.Expr, ...] = ()

    @property
    def n(self) -> b.Expr:
        """Columns."""
        return self.y.shape[-1]

    def store_row(
        self, sums: Sequence[Sums], block: b.Expr, row: b.Expr, size: tuple[int, int]
    ) -> None:
        """Write one row of a column block, without what the last block has beyond n.

        ``size`` is the columns of a block, and those of a vector.
        """
        columns, lanes = size
        base = b.index(block * columns)

        def copy(offset: b.Index, width: int) -> None:
            loaded = [b.load(buffer, (*at, offset), width) for buffer, at in sums]
            place = (*self.at, row, base + offset)
            b.store(self.y, self._computed(loaded, place, width), place, width)

        def whole() -> None:
            for offset, width in b.widths(columns, lanes):
                copy(offset, width)

        def rest() -> None:
            with T.serial(self.n - base) as column:
                copy(column, 1)

        b.either(base + columns <= self.n, whole, rest)

    def _computed(self, sums: Sequence[b.Expr], place: b.Indices, width: int) -> b.Expr:
        """The result at a place, from the sums there."""
        value, *products = [
            total if bias is None else total + b.load(bias, place[-1:], width)
            for total, bias in zip(sums, self.biases, strict=True)
        ]
        rows = (b.load(tensor, place, width) for tensor in self.rows)
        others = {"product": iter(products), "rows": rows}
        for step in self.steps:
            operands = [next(others[step.other])] if step.other else []
            value = CHAINED[step.op](Vectors(width), b.let(value), *operands)
        return value


# Declares the matrix of a product, of that name and type.
Declare: TypeAlias = Callable[[str, str], b.Buffer]


def arguments(
    kernel: b.Kernel,
    rows: b.Expr,
    types: Sequence[Sequence[str]],
    epilogues: Sequence[Epilogue],
    matrix: Declare,
) -> list[tuple[list[b.Buffer], Output]]:
    """Declare the operands of each result in turn, then all results.

    Operands of a result are the matrix of each product, of these ``types``, followed by the bias if
    it has one, and then the tensors of the shape of the result that are read.
    """
    sizes = [kernel.dim(f"n{number}") for number in range(len(epilogues))]
    operands = [
        _operands(kernel, (rows, n), f"{number}", (own, epilogue), matrix)
        for number, (n, own, epilogue) in enumerate(zip(sizes, types, epilogues, strict=True))
    ]
    results = [kernel.argument(f"y{number}", (rows, n)) for number, n in enumerate(sizes)]
    return [
        (matrices, Output(y, tuple(biases), tuple(more), epilogue.steps))
        for y, epilogue, (matrices, biases, more) in zip(results, epilogues, operands, strict=True)
    ]


def _operands(
    kernel: b.Kernel,
    shape: tuple[b.Expr, b.Expr],
    name: str,
    result: tuple[Sequence[str], Epilogue],
    matrix: Declare,
) -> tuple[list[b.Buffer], list[b.Buffer | None], list[b.Buffer]]:
    """The matrices of a result, their biases, and what else of its shape its epilogue reads."""
    types, epilogue = result
    matrices, biases = [], []
    for product, (dtype, has_bias) in enumerate(zip(types, epilogue.biases, strict=True)):
        matrices.append(matrix(f"w{name}_{product}", dtype))
        bias = kernel.argument(f"bias{name}_{product}", shape[1:]) if has_bias else None
        biases.append(bias)
    more = [kernel.argument(f"rows{name}_{i}", shape) for i in range(epilogue.rows)]
    return matrices, biases, more


def kernel_name(types: Sequence[Sequence[str]], epilogues: Sequence[Epilogue]) -> str:
    """Return a name that tells kernels of products apart in a profile."""
    parts = [
        "_".join((*own, *(step.op for step in each.steps)))
        for own, each in zip(types, epilogues, strict=True)
    ]
    return "_".join(("linear", *parts))


def each_task(
    counts: Sequence[b.Expr], body: Callable[[int, b.Expr], None], work: b.Index | None = None
) -> None:
    """Run ``body(result, task)`` for the tasks of all results, in one loop on all threads.

    Where the ``work`` of a task is known, few tasks that are not worth it run on one thread.
    """
    ends = [b.integer(0)]
    for count in counts:
        ends.append(ends[-1] + count)
    total = T.Bind(ends[-1])

    def of(result: int, i: b.Expr) -> None:
        def own() -> None:
            body(result, b.index(i - ends[result]))

        if result + 1 == len(counts):
            own()
        else:
            b.either(i < ends[result + 1], own, lambda: of(result + 1, i))

    if work is None:
        b.each(total, lambda i: of(0, i), threads=True)
    else:
        b.each_row(total, work, lambda i: of(0, i))
