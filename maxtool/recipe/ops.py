"""Chains of operations: applied to arrays, followed on shapes and types, and undone.

A chain that only moves whole rows also works on block-quantized rows, whose bytes stand for the
last dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maxtool.dtype import DType
from maxtool.recipe.operations import OPERATIONS
from maxtool.recipe.step import Array, Shape, Step


def run(steps: Sequence[Step], arrays: Sequence[Array]) -> list[Array]:
    """Apply ``steps`` in order; arrays are widened where a step is not exact for their type."""
    current = list(arrays)
    for step in steps:
        current = _step(step, current)
    return current


def may_round(steps: Sequence[Step]) -> bool:
    """Whether there are values that ``steps`` round."""
    return any(OPERATIONS[step.op].rounds for step in steps)


def is_exact(steps: Sequence[Step], arrays: Sequence[Array]) -> bool:
    """Whether undoing ``steps`` gives every bit of these arrays back: nothing is rounded."""
    current = list(arrays)
    for step in steps:
        operation, before = OPERATIONS[step.op], _admitted(step, current)
        with np.errstate(all="ignore"):
            current = operation.apply(before, step.params)
            back = run([operation.inverse(step.params)], current) if operation.rounds else before
        if not all(map(_same_bits, before, back)):
            return False
    return True


def _step(step: Step, arrays: list[Array]) -> list[Array]:
    return OPERATIONS[step.op].apply(_admitted(step, arrays), step.params)


def _admitted(step: Step, arrays: list[Array]) -> list[Array]:
    admits = OPERATIONS[step.op].admits
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        return [
            array if admits(DType.from_numpy(array.dtype)) else array.astype(np.float32)
            for array in arrays
        ]


def _same_bits(left: Array, right: Array) -> bool:
    return left.dtype == right.dtype and left.tobytes() == right.tobytes()


def run_shapes(steps: Sequence[Step], shapes: Sequence[Shape]) -> list[Shape]:
    """The shapes ``run`` gives.

    Raises:
        MisshapenWeight: If a step cannot be applied to what it gets.
    """
    current = list(shapes)
    for step in steps:
        current = OPERATIONS[step.op].shapes(current, step.params)
    return current


def result_dtype(steps: Sequence[Step], dtype: DType) -> DType:
    """The element type ``run`` gives for arrays of ``dtype``, once widened as it needs."""
    for step in steps:
        operation = OPERATIONS[step.op]
        dtype = operation.result(dtype if operation.admits(dtype) else DType.float32, step.params)
    return dtype


def moves_whole_rows(steps: Sequence[Step], shapes: Sequence[Shape]) -> bool:
    """Whether all of ``steps`` only move whole rows of tensors of these shapes."""
    current = list(shapes)
    for step in steps:
        operation = OPERATIONS[step.op]
        if not all(operation.whole_rows(step.params, len(shape)) for shape in current):
            return False
        current = operation.shapes(current, step.params)
    return True


def inverted(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps that undo ``steps``."""
    return tuple(OPERATIONS[step.op].inverse(step.params) for step in reversed(steps))
