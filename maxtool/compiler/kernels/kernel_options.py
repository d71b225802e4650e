"""Parameters of kernels of every target: chains of operations, heads and masks, windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One operation of a chain.

    Attributes:
        op: A name in ``formulas.CHAINED``.
        operands: Indices of earlier values (the inputs come first), or constants as ``float.hex``
            writes them: as floats, 1.0 would equal the index 1, and 0.0 would equal -0.0, where
            equal steps are to mean equal kernels.
    """

    op: str
    operands: tuple[int | str, ...]


# The chain of a gated MLP: its gate, then what comes up.
SILU_MUL = (ChainStep("silu", (0,)), ChainStep("mul", (2, 1)))


@dataclass(frozen=True, slots=True)
class Mask:
    """Mask that hides keys from queries.

    Attributes:
        dtype: bool, where True is seen, or a float type that is added to the scores.
        single: For batch, heads, queries and keys: whether the mask has one for all.
    """

    dtype: str
    single: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class HeadSizes:
    """The sizes of one kernel: heads of queries, of keys; elements of a key, of a value."""

    queries: int
    keys: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Window:
    """Window of an output pixel, (height, width) each.

    Attributes:
        size: Rows and columns.
        stride: Input pixels from one window to the next.
        dilation: Input pixels from one row or column of the window to the next.
        before: Padding above and to the left.
        after: Padding below and to the right.
    """

    size: Pair
    stride: Pair
    dilation: Pair
    before: Pair
    after: Pair
