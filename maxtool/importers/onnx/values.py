"""Values that flow between operators: tensors, sizes that are known by name, and sequences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.graph import Dim, Shape, Tensor, ops
from maxtool.graph.ops.operation_table import as_number
from maxtool.graph.polynomial import Polynomial

Size: TypeAlias = int | Dim
TRIED = (*range(1, 257), 1 << 30)
"""Sizes that are tried where a difference of sizes is to be 0 or more."""


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """Whole numbers of which some are dimensions that have only names: what ``Shape`` gives.

    Attributes:
        elements: An array of any shape, of ints and ``Dim``s.
        dtype: The element type, which may be a float's.
    """

    elements: NDArray[np.object_]
    dtype: DType = DType.int64


@dataclass(frozen=True, slots=True, eq=False)
class TensorSequence:
    """A sequence, whose length is known."""

    items: tuple[Value, ...]


# A traced tensor, or one that holds data: then it is known. None is an absent optional.
Value: TypeAlias = Tensor | Sizes | TensorSequence | None


def is_known(value: Value) -> bool:
    """Return whether the elements of a value are known while the model is imported."""
    return isinstance(value, Tensor) and type(value) is Tensor and not value.is_traced


def known(array: NDArray[Any] | np.generic) -> Tensor:
    """A tensor of known elements; a ``ValueError`` for a type that tensors do not have."""
    return Tensor(np.asarray(array))


def sizes_of(
    elements: Iterable[Size] | NDArray[np.object_], dtype: DType = DType.int64
) -> Tensor | Sizes:
    """Whole numbers as a value: a known tensor if none of them is a name."""
    array = elements if isinstance(elements, np.ndarray) else _array(list(elements))
    plain = [int(one) if isinstance(one, Dim) and one.is_static else one for one in array.flat]
    if any(isinstance(one, Dim) for one in plain):
        return Sizes(array, dtype)
    return known(np.array(plain, dtype.to_numpy()).reshape(array.shape))


def _array(elements: list[Size]) -> NDArray[np.object_]:
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


def polynomial(size: Size) -> Polynomial:
    """A size as a polynomial, which may be negative as no dimension is."""
    return size.polynomial if isinstance(size, Dim) else Polynomial.of(int(size))


def size_of(value: Polynomial) -> Size:
    """A polynomial as a number or a dimension."""
    plain = value.plain
    return plain if isinstance(plain, int) else Dim(plain)


def as_tensor(value: Tensor | Sizes) -> Tensor:
    """A value as a tensor; sizes are computed when the graph runs."""
    if isinstance(value, Tensor):
        return value
    return ops.cast(_as_numbers(value), value.dtype)


def _as_numbers(value: Sizes) -> Tensor:
    """Sizes as int64."""
    flat = [*value.elements.flat]
    if all(isinstance(one, Dim) or one >= 0 for one in flat):
        tensor = ops.shape_to_tensor(Shape(flat))
    else:
        tensor = ops.stack([_number(one) for one in flat])
    return ops.reshape(tensor, value.elements.shape)


def _number(size: Size) -> Tensor:
    if isinstance(size, Dim):
        return as_number(size, DType.int64)
    return known(np.array(size, np.int64))


def is_never_negative(size: Polynomial) -> bool:
    """Return whether a size is 0 or more whatever a call brings; False if that is not certain.

    Sizes grow linearly with what calls bring, in steps: small and large ones show their sign.
    """
    names = sorted({*size.names()})
    if all(factor >= 0 for _, factor in size.terms):
        return True
    return len(names) == 1 and all(size.evaluate({names[0]: one}) >= 0 for one in TRIED)
