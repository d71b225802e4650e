"""Tensors of random numbers, from one generator of the process."""

from __future__ import annotations

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import Shape, ShapeLike
from maxtool.graph.device import Device
from maxtool.nn.eager.tensor import Tensor, defaults

__all__ = ["gaussian", "normal", "set_seed", "uniform"]

_generator = np.random.default_rng()


def set_seed(seed: int) -> None:
    """Begin a sequence of numbers that is the same each time.

    Raises:
        ValueError: If the seed is negative.
    """
    global _generator
    _generator = np.random.default_rng(seed)


def uniform(
    shape: ShapeLike = (),
    range: tuple[float, float] = (0, 1),  # noqa: A002 - the reference API's name
    *,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Tensor:
    """Numbers drawn evenly from ``range``, its end left out."""
    return _tensor(_generator.uniform(*range, Shape(shape).static()), dtype, device)


def normal(
    shape: ShapeLike = (),
    mean: float = 0.0,
    std: float = 1.0,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Tensor:
    """Numbers drawn from the normal distribution with that mean and standard deviation."""
    return _tensor(_generator.normal(mean, std, Shape(shape).static()), dtype, device)


gaussian = normal


def _tensor(values: object, dtype: DType | None, device: Device | None) -> Tensor:
    kind, place = defaults(dtype, device)
    if not kind.is_float():
        raise ValueError(f"random numbers are floats, not {kind.value}")
    return Tensor(np.asarray(values), kind, place)
