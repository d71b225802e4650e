"""Differences between two checkpoints, tensor by tensor, by the names in their files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.weights.checkpoint import Checkpoint
from maxtool.weights.names import selected
from maxtool.weights.tensor_info import TensorInfo
from maxtool.weights.weight_elements import FlatElements, Weight, in_rounds, widened


@dataclass(frozen=True, slots=True)
class Difference:
    """Distance of the elements of two tensors of one shape.

    Attributes:
        name: Their name.
        elements: How many each has.
        differing: How many differ; NaN equals NaN here, and zeros of either sign are equal.
        largest: The largest absolute difference, infinite where only one of two is a number.
        at: Where that is, slowest dimension first; ``None`` if nothing differs.
    """

    name: str
    elements: int
    differing: int = 0
    largest: float = 0.0
    at: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two checkpoints, compared.

    Attributes:
        only_left: Tensors that only the first has.
        only_right: Tensors that only the second has.
        changed: Tensors of one name with another type or shape, first and second.
        same: How many tensors of one name have one type and shape.
        differences: How far values lie apart, of every tensor with one shape in both; empty
            unless values were compared.
    """

    only_left: tuple[TensorInfo, ...]
    only_right: tuple[TensorInfo, ...]
    changed: tuple[tuple[TensorInfo, TensorInfo], ...]
    same: int
    differences: tuple[Difference, ...] = ()

    @property
    def equal(self) -> bool:
        """Return whether nothing differs."""
        apart = any(difference.differing for difference in self.differences)
        return not (self.only_left or self.only_right or self.changed or apart)


def comparable(left: Checkpoint, right: Checkpoint, pattern: str | None = None) -> list[str]:
    """Names of the tensors whose values can be compared: in both, with one shape."""
    return [
        name
        for name in selected(left.tensors, pattern)
        if name in right.tensors and left.tensors[name].shape == right.tensors[name].shape
    ]


def compare(
    left: Checkpoint,
    right: Checkpoint,
    *,
    pattern: str | None = None,
    values: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Comparison:
    """Compare names, types and shapes, and if asked for also values, block types decoded.

    ``progress`` is told the bytes of the first one's payloads done since the last call.
    """
    names = selected(dict.fromkeys([*left.tensors, *right.tensors]), pattern)
    pairs = [(left.tensors.get(name), right.tensors.get(name)) for name in names]
    both = [(one, other) for one, other in pairs if one and other]
    changed = tuple((one, other) for one, other in both if _form(one) != _form(other))
    differences: tuple[Difference, ...] = ()
    if values:
        stored = ((left.stored(n), right.stored(n)) for n in comparable(left, right, pattern))
        differences = tuple(apart(ours, theirs, progress) for ours, theirs in stored)
    return Comparison(
        tuple(one for one, other in pairs if one and not other),
        tuple(other for one, other in pairs if other and not one),
        changed,
        len(both) - len(changed),
        differences,
    )


def _form(tensor: TensorInfo) -> object:
    return tensor.type_name, tensor.shape


def apart(left: Weight, right: Weight, progress: Callable[[int], None] | None = None) -> Difference:
    """Measure the distance of two weights of one shape, in parts of bounded size."""
    ours, theirs = FlatElements(left), FlatElements(right)

    def work(part: slice) -> tuple[int, float, int]:
        differing, largest, where = _apart(ours[part], theirs[part])
        return differing, largest, part.start + where

    total = Difference(left.name, ours.size)
    for results in in_rounds(ours, work, progress):
        total = _with(total, results, left.shape)
    return total


def _with(
    total: Difference, found: Iterable[tuple[int, float, int]], shape: tuple[int, ...]
) -> Difference:
    """A total with parts added; of equal differences the first one is remembered."""
    parts = sorted(found, key=lambda part: part[2])
    differing = total.differing + sum(part[0] for part in parts)
    for count, largest, where in parts:
        if count and (total.at is None or largest > total.largest):
            at = tuple(int(index) for index in np.unravel_index(where, shape)) if shape else ()
            total = Difference(total.name, total.elements, differing, largest, at)
    return Difference(total.name, total.elements, differing, total.largest, total.at)


def _apart(left: NDArray[Any], right: NDArray[Any]) -> tuple[int, float, int]:
    """Return the number of elements that differ, the largest difference, and its position."""
    with np.errstate(all="ignore"):
        ours, theirs = _plain(left), _plain(right)
        differ = ours != theirs
        if ours.dtype.kind == "f" and theirs.dtype.kind == "f":
            differ &= ~(np.isnan(ours) & np.isnan(theirs))
        count = int(np.count_nonzero(differ))
        if not count:
            return 0, 0.0, 0
        far = np.abs(widened(ours) - widened(theirs))
        far[~differ] = 0
        far[np.isnan(far)] = np.inf
        where = int(far.argmax())
        return count, float(far[where]), where


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Values of a type that NumPy itself can compare; integers stay, since floats round them."""
    if values.dtype == np.bool_:
        return values.view(np.uint8)
    return values if values.dtype.kind in "iuf" else values.astype(np.float32)
