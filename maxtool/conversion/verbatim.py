"""Tensors that stand in the source byte for byte as they are written.

They are read, looked at and written a piece at a time by one thread, through memory that stays in a
core's cache: large portions that threads hand each other cost several times as much.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from maxtool.conversion.output_tensors import Origin
from maxtool.conversion.streaming import counted, said
from maxtool.recipe import OutputTensor, Plan
from maxtool.recipe.gathered_rows import gathered
from maxtool.weights import Checkpoint, TensorSpec
from maxtool.weights.formats.payload import Placed, WriteAt
from maxtool.weights.stored_weight import StoredWeight
from maxtool.weights.tensor_info import TensorInfo

# What a thread copies before it is given more, so that a disk is told of enough at a time.
PART_BYTES = 1 << 23
# Half of the smallest second cache of a core that reads and writes gigabytes a second.
PIECE_BYTES = 1 << 19
# Runs of rows that are shorter, in the mean, are gathered by several threads.
RUN_BYTES = 1 << 16


Part: TypeAlias = Callable[[WriteAt], int]


@dataclass(frozen=True, slots=True)
class StoredRun:
    """Rows of a tensor of the source that follow each other."""

    tensor: str
    rows: range


def stored_runs(
    checkpoint: Checkpoint, plan: Plan | None, spec: TensorSpec, origin: Origin
) -> list[StoredRun] | None:
    """The runs of rows that a tensor consists of; None where it is not made of long ones alone."""
    if isinstance(origin, str):
        info = checkpoint.tensors[origin]
        return (
            [StoredRun(origin, range(math.prod(info.shape[:-1])))]
            if _is_stored(info, spec)
            else None
        )
    if not isinstance(origin, OutputTensor) or plan is None or origin.may_round:
        return None
    rows = gathered(plan, origin)
    if rows is None or not all(_is_stored(source, spec) for source in rows.sources):
        return None
    runs: list[StoredRun] = []
    for source, numbers in rows.runs(slice(None)):
        edges = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
        if len(runs) + len(edges) > 2 + spec.nbytes // RUN_BYTES:
            return None
        name = rows.sources[source].name
        runs += (
            StoredRun(name, range(int(numbers[first]), int(numbers[first]) + end - first))
            for first, end in pairwise(edges)
            if end > first
        )
    return runs


def copied(
    checkpoint: Checkpoint,
    spec: TensorSpec,
    runs: Sequence[StoredRun],
    warn: Callable[[str], None],
    threads: int,
) -> Placed:
    """The payload that consists of ``runs``; ``warn`` is told what is odd about its values."""
    found: list[Counter[str]] = []

    def finish() -> None:
        if odd := sum(found, Counter()):
            warn(f"{spec.name} holds {said(odd)}")

    def parts() -> Iterator[Part]:
        offset = 0
        for run in runs:
            weight = checkpoint.stored(run.tensor)
            row = max(1, weight.nbytes // max(1, weight.row_count))
            for rows in _parted(run.rows, max(1, PART_BYTES // row)):
                yield partial(_copy, weight, rows, offset, found)
                offset += len(rows) * row

    return Placed(spec.stored_dtype, spec.stored_shape, parts(), threads, finish)


def _parted(rows: range, step: int) -> Iterator[range]:
    return (rows[start : start + step] for start in range(0, len(rows), step))


def _copy(
    weight: StoredWeight, rows: range, offset: int, found: list[Counter[str]], write: WriteAt
) -> int:
    """Write rows to a place of the payload, and count in ``found`` what is odd about them."""
    start = offset
    memory = np.empty(PIECE_BYTES, np.uint8)
    for piece in weight.pieces(rows, memory):
        if weight.quantization_encoding is None:
            found.append(counted(piece))
        write(offset, piece.view(np.uint8).data)
        offset += piece.nbytes
    return offset - start


def _is_stored(info: TensorInfo, spec: TensorSpec) -> bool:
    """Return whether the file holds elements as they are written, one behind the other."""
    return info.is_in_order and (info.dtype, info.encoding) == (spec.dtype, spec.encoding)
