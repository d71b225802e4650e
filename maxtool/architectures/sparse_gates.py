"""Gates of an MLP of which all but the largest are zero, as if they were normally distributed.

Where the largest begin is told by their mean and standard deviation, without sorting them (Gemma
3n's Gaussian top-k, as in Spark Transformer, arXiv:2506.06644).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist

import numpy as np

from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.graph import Tensor, ops

TWO, ONE, ROOT_OF_TWO = np.float32(2), np.float32(1), np.float32(math.sqrt(2))


def is_share(number: float) -> bool:
    """Return whether a number is a share of gates in float32: 0, or between 0 and 1."""
    return number == 0 or (0 < number < 1 and bool(-ONE < _twice(number) < ONE))


def deviations(share: float) -> float:
    """Return the standard deviations above the mean below which that share of numbers is.

    The share is above 0. It is computed in float32, step by step as PyTorch's ``Normal.icdf`` does,
    so that it is the number that transformers has and llama.cpp's converter writes.
    """
    twice = _twice(share)
    inverse = NormalDist().inv_cdf((float(twice) + 1) / 2) / math.sqrt(2)
    return float(np.float32(inverse) * ROOT_OF_TWO)


def above(x: Tensor, share: float) -> Tensor:
    """``relu(x - mean - deviation * deviations(share))`` over ``[..., inner]``, ``x`` for 0."""
    if share == 0:
        return x
    centred = x - ops.mean(x, axis=-1)
    spread = ops.sqrt(ops.mean(centred * centred, axis=-1))
    return ops.relu(centred - spread * deviations(share))


def check(config: DecoderConfig) -> Iterator[str]:
    """Yield a line for each thing that is wrong with the shares of gates."""
    shares = config.gate_sparsity or ()
    if not all(map(is_share, shares)):
        yield "gate_sparsity has a number that is neither 0 nor between 0 and 1"
    if any(shares) and (config.mlp != "gated" or config.n_experts is not None):
        yield "gate_sparsity is for gated MLPs alone, and not for experts"


def _twice(share: float) -> np.float32:
    """The share between -1 and 1, of which PyTorch takes the inverse of the error function."""
    return TWO * np.float32(share) - ONE
