"""Stored rows that make a tensor, where the rules of both sides do nothing but move whole rows.

The operations that do so (permutations of rows, stacks, splits and joins) are applied to the
numbers of the rows in place of these: what comes out says where each row of the result is stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from maxtool.recipe.bind import OutputTensor
from maxtool.recipe.plan import Plan
from maxtool.recipe.step import Array
from maxtool.weights import TensorInfo

NUMBER_BYTES = np.dtype(np.intp).itemsize


@dataclass(frozen=True)
class Gathered:
    """The rows of a tensor, in order."""

    sources: tuple[TensorInfo, ...]  # all of one type; their rows are counted through
    numbers: NDArray[np.intp]  # of each row of the result, the number of the stored one

    def runs(self, rows: slice) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Yield runs of the rows ``rows``: the index of their source, and their numbers in it."""
        numbers = self.numbers[rows]
        counts = [math.prod(source.shape[:-1]) for source in self.sources]
        ends = np.cumsum(counts)
        owners = np.searchsorted(ends, numbers, side="right")
        cuts = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(numbers)]
        for first, last in pairwise(cuts):
            owner = int(owners[first])
            yield owner, numbers[first:last] - (ends[owner] - counts[owner])


def gathered(planned: Plan, emission: OutputTensor) -> Gathered | None:
    """The rows of ``emission``; None where more is done, or they are shorter than numbers."""
    bindings = [planned.parameters[name] for name in emission.parameters]
    sources = tuple(source for binding in bindings for source in binding.sources)
    if len({(source.dtype, source.encoding) for source in sources}) != 1:
        return None
    rows = sum(math.prod(source.shape[:-1]) for source in sources)
    if rows * NUMBER_BYTES > sum(source.nbytes for source in sources):
        return None
    if not emission.whole_rows([binding.shape for binding in bindings]):
        return None
    if not all(b.rule.whole_rows([source.shape for source in b.sources]) for b in bindings):
        return None
    numbered = iter(_numbered(sources))
    parameters = [b.rule.apply([next(numbered) for _ in b.sources]) for b in bindings]
    return Gathered(sources, emission.apply(parameters).reshape(-1))


def _numbered(sources: tuple[TensorInfo, ...]) -> list[Array]:
    """Arrays of the sources' shapes, with one number in the place of each row."""
    arrays, first = [], 0
    for source in sources:
        rows = math.prod(source.shape[:-1])
        numbers = np.arange(first, first + rows, dtype=np.intp)
        arrays.append(numbers.reshape(*source.shape[:-1], 1))
        first += rows
    return arrays
