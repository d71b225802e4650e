"""A weight that stays in its file and is read part by part."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.quantization.encoding import QuantizationEncoding
from maxtool.weights.source_file import Stamp, open_source
from maxtool.weights.tensor_info import TensorInfo
from maxtool.weights.weight_data import WeightData

# What is read of consecutive rows at a time.
RUN_BYTES = 1 << 22

# Rows in another order are read together with those between them if these are no more than they.
DENSE = 2

Rows = NDArray[np.intp]
Read = Callable[[int, NDArray[Any]], None]


class StoredWeight:
    """Stored weight: the facts of ``WeightData``, and reads of its payload.

    An item is an element, or where these are packed a byte of a block. Rows lie along the last
    dimension.

    Args:
        info: Where it is.
        seen: What the file was when ``info`` was read.
        whole: All of it, where its items do not follow each other in the file.
    """

    def __init__(self, info: TensorInfo, seen: Stamp | None, whole: NDArray[Any] | None) -> None:
        self.name, self.dtype, self.shape = info.name, info.dtype, info.shape
        self.quantization_encoding: QuantizationEncoding | None = info.encoding
        self._info, self._seen, self._whole = info, seen, whole
        self.row_items = math.prod(info.stored_shape[-1:])
        self.row_elements = math.prod(info.shape[-1:])
        self.row_count = math.prod(info.shape[:-1])

    @property
    def nbytes(self) -> int:
        """Bytes of the payload."""
        return self._info.nbytes if self._whole is None else self._whole.nbytes

    def items(self, part: slice) -> NDArray[Any]:
        """The items from ``part.start`` to ``part.stop``, in one row."""
        dtype, total = self._info.stored_dtype, math.prod(self._info.stored_shape)
        out = np.empty(max(min(part.stop, total) - part.start, 0), dtype)
        with self._opened() as read:
            read(part.start, out)
        return out

    @contextmanager
    def _opened(self) -> Iterator[Read]:
        """The function that reads items into an array, from the one whose number is given on."""
        if self._whole is not None:
            flat = self._whole.reshape(-1)

            def copy(start: int, out: NDArray[Any]) -> None:
                out[:] = flat[start : start + out.size]

            yield copy
            return
        with open_source(self._info.file, self._seen) as file:

            def read(start: int, out: NDArray[Any]) -> None:
                file.fill(self._info.offset + start * out.itemsize, out.view(np.uint8).data)

            yield read

    def slices(self, index: int | Rows) -> WeightData:
        """The weight's slices along its first dimension; ``IndexError`` if there are fewer."""
        numbers, inner = np.asarray(index).astype(np.intp), self._info.stored_shape[1:]
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < self.shape[0]:
            raise IndexError(f"{self.name} has {self.shape[0]} slices")
        width = math.prod(inner)
        data = self._rows(numbers.reshape(-1), range(width), width)
        shape = (*numbers.shape, *self.shape[1:])
        data = data.reshape(*numbers.shape, *inner)
        return WeightData(data, self.name, self.dtype, shape, self.quantization_encoding)

    def pieces(self, rows: range, memory: NDArray[np.uint8]) -> Iterator[NDArray[Any]]:
        """Yield the items of rows that follow each other, as many at a time as ``memory`` holds.

        There they lie, in one row, until the next are asked for.
        """
        dtype = self._info.stored_dtype
        held = memory[: len(memory) // dtype.itemsize * dtype.itemsize].view(dtype)
        with self._opened() as read:
            stop = rows.stop * self.row_items
            for start in range(rows.start * self.row_items, stop, len(held)):
                piece = held[: stop - start]
                read(start, piece)
                yield piece

    def rows(self, numbers: Rows, columns: range) -> NDArray[Any]:
        """The items ``columns`` along the last dimension, of each of the rows ``numbers``."""
        return self._rows(numbers, columns, self.row_items)

    def _rows(self, numbers: Rows, columns: range, width: int) -> NDArray[Any]:
        """The items ``columns`` of each of the rows ``numbers``, which are ``width`` items wide."""
        result = np.empty((len(numbers), len(columns)), self._info.stored_dtype)
        most = RUN_BYTES // (max(1, width) * result.itemsize)
        with self._opened() as read:
            if columns == range(width) and _is_dense(numbers):
                low = int(numbers.min())
                block = np.empty((int(numbers.max()) + 1 - low, width), result.dtype)
                read(low * width, block.reshape(-1))
                np.take(block.view(np.uint8), numbers - low, axis=0, out=result.view(np.uint8))
            elif columns == range(width):
                for first, last in _runs(numbers, len(numbers)):
                    read(int(numbers[first]) * width, result[first:last].reshape(-1))
            elif most < 2:  # parts of wide rows
                for index, number in enumerate(numbers.tolist()):
                    _pick(read, number * width, columns, result[index])
            else:
                for first, last in _runs(numbers, most):
                    block = np.empty((last - first, width), result.dtype)
                    read(int(numbers[first]) * width, block.reshape(-1))
                    result[first:last] = block[:, _slice(columns)]
        return result


def _pick(read: Read, start: int, columns: range, out: NDArray[Any]) -> None:
    """The items ``columns`` of the row that begins at ``start``."""
    step = max(1, RUN_BYTES // (abs(columns.step) * out.itemsize))
    for done in range(0, len(columns), step):
        piece = columns[done : done + step]
        low, high = sorted((piece[0], piece[-1]))
        block = np.empty(high + 1 - low, out.dtype)
        read(start + low, block)
        out[done : done + len(piece)] = block[:: columns.step]


def _slice(columns: range) -> slice:
    """A range as a slice, which has None where a range would go below 0."""
    stop = None if columns.stop < 0 else columns.stop
    return slice(columns.start, stop, columns.step)


def _is_dense(numbers: Rows) -> bool:
    """Return whether rows in another order are most of those between the first and the last."""
    if len(numbers) < 2 or (np.diff(numbers) == 1).all():
        return False
    return bool(numbers.max() - numbers.min() < DENSE * len(numbers))


def _runs(numbers: Rows, most: int) -> Iterator[tuple[int, int]]:
    """The bounds of runs of numbers that follow each other, each of ``most`` or fewer."""
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    for begin, end in zip([0, *breaks.tolist()], [*breaks.tolist(), len(numbers)], strict=True):
        for first in range(begin, end, max(1, most)):
            yield first, min(first + most, end)
