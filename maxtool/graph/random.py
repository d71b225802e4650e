"""Tensors of random numbers, from one generator of the process."""

from __future__ import annotations

from typing import Any

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import operators
from maxtool.graph.device import DeviceRef
from maxtool.graph.dim import Shape, ShapeLike
from maxtool.graph.graph import Graph
from maxtool.graph.tensor import Tensor

_generator = np.random.default_rng()


def set_seed(seed: int) -> None:
    """Start a reproducible sequence of random numbers.

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
    device: DeviceRef | None = None,
) -> Tensor:
    """Numbers drawn evenly from ``range``, its end left out.

    Raises:
        ValueError: If a size is not known, the range is empty, the numbers are not to be floats,
            or a graph is being traced, which would have the same numbers each time it runs.
    """
    low, high = range
    if not low < high:
        raise ValueError(f"uniform: the range from {low} to {high} has no numbers")
    values = _generator.uniform(low, high, _sizes("uniform", shape))
    return _tensor(values, dtype, device)


def normal(
    shape: ShapeLike = (),
    mean: float = 0.0,
    std: float = 1.0,
    *,
    dtype: DType | None = None,
    device: DeviceRef | None = None,
) -> Tensor:
    """Numbers drawn from the normal distribution with that mean and standard deviation.

    Raises:
        ValueError: If the deviation is negative, or as for :func:`uniform`.
    """
    return _tensor(_generator.normal(mean, std, _sizes("normal", shape)), dtype, device)


gaussian = normal
operators.install({"normal": normal})  # Tensor.randn


def _sizes(name: str, shape: ShapeLike) -> tuple[int, ...]:
    if Graph.current() is not None:
        raise ValueError(f"{name}: graphs draw no random numbers; make the tensor an input")
    sizes = Shape(shape)
    if not sizes.is_static:
        raise ValueError(f"{name}: the sizes of {sizes} are not known")
    return sizes.static()


def _tensor(values: Any, dtype: DType | None, device: DeviceRef | None) -> Tensor:  # noqa: ANN401
    number_type = dtype or DType.float32
    if not number_type.is_float():
        raise ValueError(f"random numbers are floats, not {number_type.value}")
    return Tensor(np.asarray(values), number_type, device)
