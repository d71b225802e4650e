"""Importance of an array's columns: how much the squared error of each element counts.

llama.cpp's importance matrices hold, for each column of a matrix, the mean square of what it is
multiplied with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxtool.casting import widen
from maxtool.errors import MisshapenWeight, ModelMismatch
from maxtool.parallel import in_parts
from maxtool.quantization.block import NOTHING, Float32

# Elements whose squares are summed at a time.
CHUNK_ELEMENTS = 1 << 18


class BlockWeights(NamedTuple):
    """Importance of some blocks, as compiled quantizers are given it.

    Attributes:
        importance: That of the columns of blocks, ``[columns, elements]``.
        columns: The number of each block's column, ``[blocks]``.
        row_power: The mean square of the row that each block is part of, ``[blocks]``; zeros where
            encoders have no use for it.
    """

    importance: Float32
    columns: NDArray[np.int64]
    row_power: Float32


@dataclass(frozen=True, slots=True)
class Importance:
    """Importance for the blocks of an array.

    Attributes:
        matrices: Of each block of a row, for each matrix, ``[matrices, blocks per row, elements]``.
        rows: How many rows each matrix has.
        row_power: The mean square of each row; empty where encoders have no use for it.
    """

    matrices: Float32
    rows: int
    row_power: Float32

    @classmethod
    def of(
        cls,
        importance: ArrayLike,
        array: NDArray[Any],
        elements_per_block: int,
        *,
        by_rows: bool,
        tensor: str | None,
    ) -> Importance:
        """Check importance ``[row]``, or ``[..., row]`` for ``array``, ``[..., rows, row]``.

        Raises:
            MisshapenWeight: If the shapes do not fit each other.
            ModelMismatch: If a number is negative or not finite.
        """
        numbers = np.asarray(importance, np.float32)
        row = array.shape[-1]
        if numbers.shape not in ((row,), (*array.shape[:-2], row)):
            what = f"importance {list(numbers.shape)} does not fit the shape {list(array.shape)}"
            raise MisshapenWeight(what, tensor=tensor)
        if not (np.isfinite(numbers).all() and (numbers >= 0).all()):
            raise ModelMismatch("importance is negative or not finite", tensor=tensor)
        count, blocks = math.prod(numbers.shape[:-1]), row // elements_per_block
        matrices = numbers.reshape(count, blocks, elements_per_block)
        rows = array.size // max(numbers.size, 1)
        return cls(matrices, rows, mean_squares(array) if by_rows and array.size else NOTHING)

    def of_blocks(self, part: slice) -> tuple[Float32, Float32]:
        """Return the importance of some blocks' elements, ``[blocks, elements]``, and row_power."""
        weights = self.weights(part)
        power = weights.row_power if self.row_power.size else NOTHING
        return weights.importance[weights.columns], power

    def weights(self, part: slice) -> BlockWeights:
        """Return the importance of some blocks, by their columns."""
        each = self.matrices.shape[1]
        rows, columns = np.divmod(np.arange(part.start, part.stop, dtype=np.int64), each)
        columns += rows // self.rows * each
        power = self.row_power[rows] if self.row_power.size else np.zeros(len(rows), np.float32)
        return BlockWeights(self.matrices.reshape(-1, self.matrices.shape[2]), columns, power)


def mean_squares(array: NDArray[Any]) -> Float32:
    """The mean square of each row, ``[rows]``, of sums from the first element to the last."""
    rows = array.reshape(-1, array.shape[-1])
    result = np.empty(len(rows), np.float32)

    def work(part: slice) -> None:
        with np.errstate(all="ignore"):
            squares = np.square(widen(rows[part]))
            sums = np.add.accumulate(squares, axis=1, out=squares)[:, -1]
            np.divide(sums, np.float32(array.shape[-1]), out=result[part])

    in_parts(len(rows), max(1, CHUNK_ELEMENTS // max(1, array.shape[-1])), work, threads=1)
    return result
