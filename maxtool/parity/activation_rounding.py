"""The rounding of activations before they are multiplied with quantized weights.

Kernels of quantized weights multiply whole numbers: each block of activations is divided by
``scale = max |x| / 127`` and rounded to eight bits, as llama.cpp does. What that changes in the
outputs of a graph is seen by evaluating it with the same rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from maxtool.parity.array_types import Array, Floats

LARGEST = 127
"""The largest magnitude of a rounded activation."""
PRODUCTS = frozenset({"expert_linear", "linear", "matmul"})
"""Operations whose kernels read their second operand quantized, and round the first."""


@dataclass(frozen=True, slots=True)
class RoundingWeight:
    """A weight that is read when it is called, and what its kernels round activations by."""

    read: Callable[[], Array]
    block: int  # activations that share a scale

    def __call__(self) -> Array:
        """Return the elements."""
        return self.read()


def rounded(x: Floats, block: int) -> Floats:
    """Activations as their kernels see them: eight bits, and a scale for each block of a row."""
    blocks = x.reshape(*x.shape[:-1], -1, block)
    scales = np.abs(blocks).max(-1, keepdims=True) / LARGEST
    steps = np.rint(blocks / np.where(scales == 0, 1, scales))
    return np.asarray(steps * scales).reshape(x.shape)
