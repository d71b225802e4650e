"""Parameters of kernels: chains of operations, epilogues, heads and masks, windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One operation of a chain.

    Operands are indices of earlier values (the inputs come first), or constants as ``float.hex``
    writes them: as floats, 1.0 would equal the index 1, and 0.0 would equal -0.0, where equal steps
    are to mean equal kernels.
    """

    op: str  # a name in ``formulas.CHAINED``
    operands: tuple[int | str, ...]


# The chain of a gated MLP: its gate, then what comes up.
SILU_MUL = (ChainStep("silu", (0,)), ChainStep("mul", (2, 1)))


@dataclass(frozen=True, slots=True)
class EpilogueStep:
    """One operation of an epilogue, on what the one before it gave.

    Its other operand, if it has one, is the second product of the kernel, or the next of the
    tensors that have the shape of the result. Which operand is first must not matter.
    """

    op: str  # a name in ``formulas.CHAINED``
    other: Literal["product", "rows"] | None = None


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Operations on one product, or on two, before the result is stored.

    They begin with the first product. For each of them ``biases`` says whether a row is added to
    it before anything else.
    """

    biases: tuple[bool, ...] = (False,)
    steps: tuple[EpilogueStep, ...] = ()

    @property
    def rows(self) -> int:
        """Count of the tensors of the shape of the result that it reads."""
        return sum(step.other == "rows" for step in self.steps)

    @property
    def is_plain(self) -> bool:
        """Return whether it is of one product, to which nothing but a bias is done."""
        return len(self.biases) == 1 and not self.steps

    @property
    def operands(self) -> int:
        """Count of the tensors that it reads, the matrices of the products included."""
        return len(self.biases) + sum(self.biases) + self.rows


@dataclass(frozen=True, slots=True)
class Mask:
    """Mask that hides keys from queries."""

    dtype: str  # bool, where True is seen, or a float type that is added to the scores
    single: tuple[bool, ...]  # for batch, heads, queries, keys: whether the mask has one for all


@dataclass(frozen=True, slots=True)
class HeadSizes:
    """The sizes of one kernel: heads of queries, of keys; elements of a key, of a value."""

    queries: int
    keys: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Window:
    """Window of an output pixel, a number for each spatial dimension."""

    size: tuple[int, ...]  # rows and columns
    stride: tuple[int, ...]  # input pixels from one window to the next
    dilation: tuple[int, ...]  # input pixels from one row or column of the window to the next
    before: tuple[int, ...]  # padding above and to the left
    after: tuple[int, ...]  # padding below and to the right

    @property
    def is_padded(self) -> bool:
        """Return whether some of it may lie outside of the image."""
        return max(*self.before, *self.after) > 0

    @property
    def is_pixel(self) -> bool:
        """Return whether every output pixel sees the input pixel of its own place alone."""
        return max(self.size) == max(self.stride) == 1 and not self.is_padded

    def along(self, axes: slice) -> Window:
        """Return the window along some of its dimensions."""
        parts = (self.size, self.stride, self.dilation, self.before, self.after)
        return Window(*(part[axes] for part in parts))


@dataclass(frozen=True, slots=True)
class Phases:
    """Interleaved parts of the result of a transposed convolution, each a convolution of its own.

    Output pixels that are a stride apart see the same places of the filter, with strides of 1. All
    parts have windows of one size, of which some use less: the last rows and columns.
    """

    stride: tuple[int, ...]  # rows and columns from a pixel to the next one of its phase
    size: tuple[int, ...]  # rows and columns of the whole filter
    before: tuple[int, ...]  # rows and columns in front of the result that are left out

    @property
    def count(self) -> int:
        """Return how many there are."""
        return self.stride[0] * self.stride[1]


@dataclass(frozen=True, slots=True)
class ChainEpilogue:
    """Operations on the result of a product or a convolution before it is stored.

    Inputs of the steps are the result, and then others: one row for all of its rows or pixels, or a
    tensor of its shape, as ``columns`` says; of float32 unless there are ``types``. The last step
    gives what is stored, as ``out``.
    """

    columns: tuple[bool, ...] = ()
    steps: tuple[ChainStep, ...] = ()
    types: tuple[str, ...] = ()
    out: str = "float32"

    @property
    def inputs(self) -> list[tuple[bool, str]]:
        """Return of each of the others whether it is a row, and its type."""
        types = self.types or ("float32",) * len(self.columns)
        return list(zip(self.columns, types, strict=True))


AS_IT_IS = ChainEpilogue()
"""Nothing is done."""


def adding(count: int) -> tuple[ChainStep, ...]:
    """Return the steps that add ``count`` more inputs to the first, one after the other."""
    sums = [0, *range(count + 1, 2 * count)]
    return tuple(ChainStep("add", (sums[index], index + 1)) for index in range(count))
