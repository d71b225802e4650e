"""Weights of squared errors, as ggml's quantizers derive them from importance."""

from __future__ import annotations

import numpy as np

from maxtool.quantization import block
from maxtool.quantization.block import Float32
from maxtool.quantization.primitives import total


def mean_square(values: Float32, times: int = 1) -> Float32:
    """The mean square of each column, times a number."""
    squares = total(values * values)
    squares *= np.float32(times)
    squares /= np.float32(len(values))
    return squares


def by_block(values: Float32, importance: Float32, group: int, times: int) -> Float32:
    """``tempered`` by the mean square of a block, times a number: ``[group, groups * blocks]``."""
    power = np.tile(mean_square(values, times), len(values) // group)
    return tempered(block.grouped(values, group), block.grouped(importance, group), power)


def tempered(values: Float32, importance: Float32, power: Float32) -> Float32:
    """``importance * sqrt(power + value**2)``, where the power is a mean square."""
    weights = values * values
    weights += power
    np.sqrt(weights, out=weights)
    weights *= importance
    return weights
