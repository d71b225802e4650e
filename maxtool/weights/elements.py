"""The elements of a weight in parts of bounded size, whatever their encoding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.quantization.codec import dequantize
from maxtool.weights.data import WeightData

# Elements in a part: a whole number of blocks of every encoding, and a core's cache as float64.
PART = 1 << 17


class Elements:
    """A weight's elements in one row, slowest dimension first; quantized ones decode as they come.

    Args:
        weight: The weight; its data may be mapped.
    """

    def __init__(self, weight: WeightData) -> None:
        self.weight = weight
        self.size = math.prod(weight.shape)
        self.encoding = weight.quantization_encoding
        self._stored = weight.data.reshape(-1, *self._block())

    def __getitem__(self, part: slice) -> NDArray[Any]:
        """Elements ``part``, whose start is a multiple of ``PART``."""
        if self.encoding is None:
            return self._stored[part]
        each = self.encoding.elements_per_block
        blocks = self._stored[part.start // each : -(-part.stop // each)]
        return dequantize(blocks, self.encoding, tensor=self.weight.name).reshape(-1)

    def _block(self) -> tuple[int, ...]:
        return () if self.encoding is None else (self.encoding.block_size,)


def widened(values: NDArray[Any]) -> NDArray[Any]:
    """Values in a type in which sums of many of them, and of their squares, stay true.

    That is float64, and for float64, whose squares may overflow, the widest type of the machine.
    """
    wide = np.longdouble if values.dtype == np.float64 else np.float64
    tiny = values.dtype.itemsize == 1 and values.dtype.kind not in "iub"  # ml_dtypes' own types
    return (values.astype(np.float32) if tiny else values).astype(wide)
