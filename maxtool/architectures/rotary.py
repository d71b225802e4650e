"""Rotary position embedding: the tables of angles."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import DerivedWeight

Table: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.float32]]


class RotaryTable:
    """Cosine and sine of the angle of each position and pair.

    The angle of pair ``i`` at position ``p`` is ``p / factor * theta ** (-2 i / dim)`` (Su et
    al. 2021, with the linear position interpolation of Chen et al. 2023). Frequencies, angles and
    results are rounded to float32 where transformers rounds them, so that both see the same tables.

    This is no module: the tables are derived from the configuration and stand in no checkpoint.
    They are computed when they are compiled or stored, not when a model is only planned.

    Args:
        name: What the names of the tables start with.
        dim: How many elements of a head are rotated, an even number.
        context: How many positions there are.
        theta: The base of the frequencies.
        factor: What positions are divided by.

    Attributes:
        cos: ``[context, dim / 2]``, float32.
        sin: The same shape.
    """

    def __init__(
        self, name: str, dim: int, context: int, theta: float, factor: float = 1.0
    ) -> None:
        def angles() -> Table:
            exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
            frequencies = np.float32(1) / np.power(np.float32(theta), exponents, dtype=np.float32)
            positions = np.arange(context, dtype=np.float32)
            return np.outer(positions, frequencies / np.float32(factor)).astype(np.float32)

        shape = (context, dim // 2)
        self.cos = DerivedWeight(f"{name}.cos", DType.float32, shape, lambda: np.cos(angles()))
        self.sin = DerivedWeight(f"{name}.sin", DType.float32, shape, lambda: np.sin(angles()))
