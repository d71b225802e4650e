"""Products of two thin matrices, carried through a recipe's operations without multiplying them.

Whatever moves rows of a product moves those of its left factor, and whatever moves columns those of
its right one. Products that are joined along their rows keep one right factor if they share it;
otherwise their factors lie beside each other, and the rank is the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maxtool.errors import MisshapenWeight
from maxtool.recipe import operations as ops
from maxtool.recipe.step import Array, Shape, Step

STACKS = frozenset({"stack", "unstack"})


@dataclass(frozen=True, eq=False)
class Factors:
    """A matrix, or a stack of them, as ``left @ right``.

    Attributes:
        left: ``[..., rows, rank]``.
        right: ``[..., rank, columns]``.
    """

    left: Array
    right: Array

    @property
    def rank(self) -> int:
        """Number of columns of the left factor, and of rows of the right one."""
        return int(self.left.shape[-1])

    @property
    def transposed(self) -> Factors:
        """The transposed matrix."""
        return Factors(self.right.swapaxes(-1, -2), self.left.swapaxes(-1, -2))

    def padded(self, before: int, after: int) -> Factors:
        """The same product, with zeros around in the dimension of the rank."""
        if not before and not after:
            return self
        edges = [(0, 0)] * (self.left.ndim - 2)
        left = np.pad(self.left, [*edges, (0, 0), (before, after)])
        return Factors(left, np.pad(self.right, [*edges, (before, after), (0, 0)]))


def zero(shape: Shape) -> Factors:
    """A matrix of zeros, of rank 0."""
    rows, columns = shape
    return Factors(np.zeros((rows, 0), np.float32), np.zeros((0, columns), np.float32))


def carried(steps: Sequence[Step], items: Sequence[Factors]) -> list[Factors]:
    """Apply ``steps`` in order; MisshapenWeight at one that does more than move rows or columns."""
    current = list(items)
    for step in steps:
        current = _carried(step, current)
    return current


def _carried(step: Step, items: list[Factors]) -> list[Factors]:
    last = items[0].left.ndim - 1
    if step.op in STACKS:
        return _stacked(step, items)
    if step.op == "transpose" and tuple(step.params["axes"]) == (1, 0):
        return [item.transposed for item in items]
    if step.params.get("axis") == last:
        turned = Step(step.op, {**step.params, "axis": last - 1})
        return [item.transposed for item in _moved(turned, [i.transposed for i in items])]
    return _moved(step, items)


def _moved(step: Step, items: list[Factors]) -> list[Factors]:
    """Apply a step that moves rows to the left factors."""
    operation, ndim = ops.OPERATIONS[step.op], items[0].left.ndim
    along_rows = step.params.get("axis", 0) == ndim - 2  # of each matrix, not of a stack of them
    if not along_rows or not operation.whole_rows(step.params, ndim):
        raise MisshapenWeight(f"the factors of a matrix cannot be carried through {step.op}")
    if not operation.joins:
        return [
            Factors(left, item.right) for item in items for left in ops.run([step], [item.left])
        ]
    shared = _shared(items)
    (left,) = ops.run([step], [item.left for item in shared])
    return [Factors(left, shared[0].right)]


def _stacked(step: Step, items: list[Factors]) -> list[Factors]:
    """Apply a step between matrices and a stack of them, which are of one rank there."""
    if step.params["axis"] != 0:
        raise MisshapenWeight(f"the factors of a matrix cannot be carried through {step.op}")
    rank = max(item.rank for item in items)
    even = [item.padded(0, rank - item.rank) for item in items]
    lefts = ops.run([step], [item.left for item in even])
    rights = ops.run([step], [item.right for item in even])
    return [Factors(left, right) for left, right in zip(lefts, rights, strict=True)]


def _shared(items: list[Factors]) -> list[Factors]:
    """The same products over one right factor: that of all, or all of them below each other."""
    if all(_is_same(item.right, items[0].right) for item in items):
        return items
    ends = np.cumsum([item.rank for item in items]).tolist()
    right = np.concatenate([item.right for item in items], axis=-2)
    lefts = [
        item.padded(end - item.rank, ends[-1] - end).left
        for item, end in zip(items, ends, strict=True)
    ]
    return [Factors(left, right) for left in lefts]


def _is_same(left: Array, right: Array) -> bool:
    """Return whether two views are of the same elements in memory."""
    address = "data"
    one, two = left.__array_interface__, right.__array_interface__
    return (one[address], left.shape, left.strides) == (two[address], right.shape, right.strides)
