"""The elements of a weight in parts of bounded size, whatever their encoding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.parallel import in_parts
from maxtool.quantization.codec import dequantize
from maxtool.weights.stored_weight import StoredWeight
from maxtool.weights.weight_data import WeightData

# Elements in a part: a whole number of blocks of every encoding, and a core's cache as float64.
PART = 1 << 17
# Parts between two calls of a progress function.
ROUND = 32

Result = TypeVar("Result")

Weight = WeightData | StoredWeight


def items(weight: Weight) -> tuple[Callable[[slice], NDArray[Any]], int]:
    """A function for parts of a weight as it is stored, in one row, and its size in bytes."""
    if isinstance(weight, StoredWeight):
        return weight.items, weight.nbytes
    return weight.data.reshape(-1).__getitem__, weight.data.nbytes


class Elements(Protocol):
    """A tensor's elements in one row, slowest dimension first, that are read part by part."""

    size: int
    nbytes: int

    def __getitem__(self, part: slice, /) -> NDArray[Any]:
        """Elements ``part``, whose start is a multiple of ``PART``."""
        ...


class FlatElements:
    """A weight's elements in one row, slowest dimension first; blocks decode as they come."""

    def __init__(self, weight: Weight) -> None:
        self.weight = weight
        self.size = math.prod(weight.shape)
        self.encoding = weight.quantization_encoding
        self._items, self.nbytes = items(weight)

    def __getitem__(self, part: slice) -> NDArray[Any]:
        """Elements ``part``, whose start is a multiple of ``PART``."""
        if self.encoding is None:
            return self._items(part)
        each, size = self.encoding.elements_per_block, self.encoding.block_size
        blocks = self._items(slice(part.start // each * size, -(-part.stop // each) * size))
        return dequantize(blocks, self.encoding, tensor=self.weight.name)


def in_rounds(
    elements: Elements,
    work: Callable[[slice], Result],
    progress: Callable[[int], None] | None,
) -> Iterator[list[Result]]:
    """Do ``work`` on all parts of some elements, and tell the bytes of each round of them.

    Within a round, results come in any order.
    """
    done = 0
    for start in range(0, elements.size, ROUND * PART):
        count = min(ROUND * PART, elements.size - start)

        def shifted(part: slice, at: int = start) -> Result:
            return work(slice(at + part.start, at + part.stop))

        yield in_parts(count, PART, shifted)
        share = math.ceil(elements.nbytes * (start + count) / elements.size)
        if progress is not None:
            progress(share - done)
        done = share


def equal_bits(left: Weight, right: Weight, dtype: DType | None = None) -> bool:
    """Return whether two weights of one shape are equal bit by bit, as stored or as ``dtype``."""
    if dtype is None:
        (ours, count), (theirs, other) = items(left), items(right)
        step, total = PART, max(count, other)
    else:
        ours, theirs = _cast(FlatElements(left), dtype), _cast(FlatElements(right), dtype)
        step, total = PART, math.prod(left.shape)
    parts = (slice(start, start + step) for start in range(0, total, step))
    return all(ours(part).tobytes() == theirs(part).tobytes() for part in parts)


def _cast(elements: FlatElements, dtype: DType) -> Callable[[slice], NDArray[Any]]:
    def part(where: slice) -> NDArray[Any]:
        values = elements[slice(where.start, min(where.stop, elements.size))]
        return WeightData.from_numpy(values, elements.weight.name).astype(dtype).data

    return part


def widened(values: NDArray[Any]) -> NDArray[Any]:
    """Values in a type in which sums of many of them, and of their squares, stay true.

    That is float64, and for float64, whose squares may overflow, the widest type of the machine.
    """
    wide = np.longdouble if values.dtype == np.float64 else np.float64
    tiny = values.dtype.itemsize == 1 and values.dtype.kind not in "iub"  # ml_dtypes' own types
    return (values.astype(np.float32) if tiny else values).astype(wide)
