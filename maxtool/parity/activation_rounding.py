"""The rounding of activations before they are multiplied with weights of few bits.

Kernels of quantized weights multiply whole numbers: each block of activations is divided by
``scale = max |x| / 127`` and rounded to eight bits, as llama.cpp does. Those of bfloat16 round to
bfloat16 where the machine multiplies pairs of such numbers. What that changes in the outputs of a
graph is seen by evaluating it with the same rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import ml_dtypes
import numpy as np

from maxtool.parity.array_types import Array, Floats

LARGEST = 127
"""The largest magnitude of a rounded activation."""
PRODUCTS = frozenset({"expert_linear", "linear", "matmul"})
"""Operations whose kernels read their second operand as it is stored, and round the first."""

Rounding: TypeAlias = Callable[[Floats], Floats]
"""What kernels of a weight make of activations."""


@dataclass(frozen=True, slots=True)
class RoundingWeight:
    """A weight that is read when it is called, and how its kernels round activations."""

    read: Callable[[], Array]
    rounded: Rounding

    def __call__(self) -> Array:
        """Return the elements."""
        return self.read()


def rounded(x: Floats, block: int) -> Floats:
    """Activations as their kernels see them: eight bits, and a scale for each block of a row."""
    blocks = x.reshape(*x.shape[:-1], -1, block)
    scales = np.abs(blocks).max(-1, keepdims=True) / LARGEST
    steps = np.rint(blocks / np.where(scales == 0, 1, scales))
    return np.asarray(steps * scales).reshape(x.shape)


def rounded_to_bfloat16(x: Floats) -> Floats:
    """Activations as kernels see them that multiply pairs of bfloat16; ties go to even."""
    return x.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)
