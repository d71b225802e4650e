"""Tensors of one value.

While a graph is being traced they are values of it, whose sizes may have names.
"""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.graph.device import DeviceRef
from maxtool.graph.dim import Shape, ShapeLike
from maxtool.graph.graph import Graph
from maxtool.graph.ops.layout import broadcast_to
from maxtool.graph.tensor import Tensor


def full(
    shape: ShapeLike, value: float, *, dtype: DType | None = None, device: DeviceRef | None = None
) -> Tensor:
    """A tensor of one value.

    Args:
        shape: Its sizes; in a graph they may have names.
        value: The value.
        dtype: The element type; float32 when absent.
        device: Where it is; the host when absent.

    Raises:
        ValueError: If a size has a name and no graph is being traced.
    """
    sizes, element_type, graph = Shape(shape), dtype or DType.float32, Graph.current()
    if graph is not None:
        return broadcast_to(
            graph.value(Tensor.full([], value, dtype=element_type, device=device)), sizes
        )
    if not sizes.is_static:
        raise ValueError(f"full: the sizes of {sizes} are not known; no graph is being traced")
    return Tensor.full(sizes, value, dtype=element_type, device=device)


def zeros(
    shape: ShapeLike, *, dtype: DType | None = None, device: DeviceRef | None = None
) -> Tensor:
    """A tensor of zeros; see :func:`full`."""
    return full(shape, 0, dtype=dtype, device=device)


def ones(
    shape: ShapeLike, *, dtype: DType | None = None, device: DeviceRef | None = None
) -> Tensor:
    """A tensor of ones; see :func:`full`."""
    return full(shape, 1, dtype=dtype, device=device)


def full_like(like: Tensor, value: float) -> Tensor:
    """A tensor of one value, of the shape, type and device of another."""
    return full(like.shape, value, dtype=like.dtype, device=like.device)


def zeros_like(like: Tensor) -> Tensor:
    """A tensor of zeros, of the shape, type and device of another."""
    return full_like(like, 0)


def ones_like(like: Tensor) -> Tensor:
    """A tensor of ones, of the shape, type and device of another."""
    return full_like(like, 1)
