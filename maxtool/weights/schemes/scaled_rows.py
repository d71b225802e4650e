"""Numbers with one scale for all, for each row, or for each run of columns of a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.weights.schemes import packed_integers as packing
from maxtool.weights.schemes.scheme import Misfit, expect
from maxtool.weights.tensor_info import TensorInfo

SCALE_TYPES = frozenset({DType.float16, DType.bfloat16, DType.float32})


def run_of(scale: TensorInfo, shape: tuple[int, int]) -> int:
    """Return how many columns of a matrix share a scale; ``Misfit`` if shapes do not allow it."""
    expect(scale, SCALE_TYPES)
    rows, columns = shape
    if scale.shape in ((), (1,), (1, 1), (rows,)):
        return columns
    runs = scale.shape[1] if len(scale.shape) == 2 and scale.shape[0] == rows else 0
    if runs and columns % runs == 0:
        return columns // runs
    raise Misfit(f"{scale.name} has the shape {list(scale.shape)}, for {list(shape)}")


def decode(
    numbers: Callable[[slice], NDArray[Any]],
    zeros: NDArray[Any] | None,
    scales: NDArray[Any],
    owners: NDArray[np.intp],
    out: NDArray[Any],
) -> None:
    """``(number - zero) * scale``, some rows at a time.

    Args:
        numbers: Those of some rows.
        zeros: Of one number, of one for each row, or of some for each row; ``None`` for 0.
        scales: In the same forms.
        owners: For each column the number of its scale in a row.
        out: What is filled, of the type that products are rounded to.
    """
    rows, columns = out.shape
    dtype = DType.from_numpy(out.dtype)
    factors = _by_rows(scales)
    offsets = None if zeros is None else _by_rows(zeros)
    step = packing.rows_at_once(columns)
    for first in range(0, rows, step):
        part = slice(first, first + step)
        here = None if offsets is None else _spread(offsets, part, owners)
        out[part] = packing.products(numbers(part), here, _spread(factors, part, owners), dtype)


def _by_rows(table: NDArray[Any]) -> NDArray[np.float32]:
    """A table as a matrix, of one row if it is for all rows."""
    return table.astype(np.float32).reshape(len(table) if table.ndim else 1, -1)


def _spread(table: NDArray[Any], part: slice, owners: NDArray[np.intp]) -> NDArray[Any]:
    """The rows ``part`` of a table, for each column the entry that it belongs to."""
    rows = table[part] if len(table) > 1 else table
    return rows[:, owners] if rows.shape[1] > 1 else rows
