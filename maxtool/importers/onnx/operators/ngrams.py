"""TfIdfVectorizer: how often sequences of a pool stand in rows of whole numbers.

The pool has sequences of each length, ``n``-grams, and each counts at a place of the output. One
may stand with gaps: its elements are then as many places apart as each other, at most
``max_skip_count`` more than one. What stands alone has no gaps, and counts once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import known

MODES = ("TF", "IDF", "TFIDF")
MOST_DISTANCES = 1 << 10
"""Lengths and distances that are looked at, each by operations of its own."""


@dataclass(frozen=True, slots=True)
class Grams:
    """The sequences of one length: ``[count, length]``, and where each counts in the output."""

    elements: NDArray[np.int64]
    places: NDArray[np.int64]


@operator("TfIdfVectorizer")
def tf_idf_vectorizer(call: OperatorCall) -> Tensor:
    """Count the sequences of the pool in each row, with weights where the mode says so."""
    mode, shortest = call.text("mode"), call.number("min_gram_length")
    longest, skips = call.number("max_gram_length"), call.number("max_skip_count")
    require(mode in MODES, f"there is no mode {mode!r}")
    require(1 <= shortest <= longest, f"there are no lengths from {shortest} to {longest}")
    require(skips >= 0, f"it cannot skip {skips}")
    x = call.x()
    require(x.rank in (1, 2), "its input has one dimension, or two")
    require(x.dtype in (DType.int32, DType.int64), "texts are not supported; whole numbers are")
    rows = ops.cast(x if x.rank == 2 else ops.unsqueeze(x, 0), DType.int64)
    size = 1 + max(call.numbers("ngram_indexes"), default=0)
    counts = ops.broadcast_to(ops.cast(0.0, DType.float32), [rows.shape[0], size])
    for grams in _pool(call):
        length = grams.elements.shape[1]
        if not len(grams.places) or not shortest <= length <= longest:
            continue
        distances = _distances(rows, length, skips)
        require(len(distances) <= MOST_DISTANCES, f"it skips {skips}; {MOST_DISTANCES} at most")
        found = [_counts(rows, grams.elements, distance) for distance in distances]
        for one in found:
            places = ops.broadcast_to(known(grams.places), one.shape)
            counts = ops.scatter_add(counts, one, places, 1)
    result = _weighted(call, counts, mode, size)
    return result if x.rank == 2 else ops.reshape(result, [size])


def _pool(call: OperatorCall) -> Iterator[Grams]:
    """The sequences of each length, from 1 on."""
    require("pool_strings" not in call.attributes, "texts are not supported; whole numbers are")
    pool = np.array(call.numbers("pool_int64s"), np.int64)
    places = np.array(call.numbers("ngram_indexes"), np.int64)
    starts = [*call.numbers("ngram_counts"), len(pool)]
    require(starts[0] == 0 and starts == sorted(starts), "ngram_counts has no order from 0 on")
    require(not len(places) or places.min() >= 0, "ngram_indexes has a negative place")
    first = 0
    for length, (start, stop) in enumerate(pairwise(starts), start=1):
        require((stop - start) % length == 0, f"the pool has a part of a sequence of {length}")
        elements = pool[start:stop].reshape(-1, length)
        require(len(np.unique(elements, axis=0)) == len(elements), "the pool has a sequence twice")
        yield Grams(elements, places[first : first + len(elements)])
        first += len(elements)
    require(first == len(places), "ngram_indexes has another length than the pool has sequences")


def _distances(rows: Tensor, length: int, skips: int) -> range:
    """Distances between elements of a sequence; none that leaves no room in a row."""
    if length == 1:
        return range(1, 2)
    columns = rows.shape[1]
    most = skips + 1
    if columns.is_static:
        most = min(most, (int(columns) - 1) // (length - 1))
    return range(1, most + 1)


def _counts(rows: Tensor, grams: NDArray[np.int64], distance: int) -> Tensor:
    """Counts of each sequence in each row with such a distance, float32 [rows, grams]."""
    count, columns = rows.shape
    numbers = ops.range(0, columns)
    last = ops.reshape(ops.shape_to_tensor([columns]), []) - 1
    there = ops.reshape(ops.less_equal(numbers, last - (grams.shape[1] - 1) * distance), [1, 1, -1])
    for index, wanted in enumerate(grams.T):
        places = ops.minimum(numbers + index * distance, last)
        here = ops.reshape(ops.gather(rows, places, 1), [count, 1, columns])
        there = ops.logical_and(there, ops.equal(here, known(wanted.reshape(1, -1, 1))))
    found = ops.sum(ops.cast(there, DType.float32), 2)
    return ops.reshape(found, [count, len(grams)])


def _weighted(call: OperatorCall, counts: Tensor, mode: str, size: int) -> Tensor:
    """Counts as the mode has them, with the weight of each sequence where there are such."""
    if mode == "TF":
        return counts
    if mode == "IDF":
        counts = ops.minimum(counts, 1.0)
    if "weights" not in call.attributes:
        return counts
    places = call.numbers("ngram_indexes")
    weights = np.array(call.attribute("weights"), np.float32)
    require(weights.shape == (len(places),), f"it has {len(weights)} weights for {len(places)}")
    require(len({*places}) == len(places), "sequences with weights count at one place")
    spread = np.zeros(size, np.float32)
    spread[places] = weights
    return counts * known(spread)
