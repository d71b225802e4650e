"""The places of what is not zero, as many as the data says."""

from __future__ import annotations

import numpy as np

from maxtool.dtype import DType
from maxtool.graph.dim import Dim, DimLike, Shape
from maxtool.graph.ops.comparison import not_equal
from maxtool.graph.ops.elementwise import cast
from maxtool.graph.ops.layout import flatten
from maxtool.graph.ops.operation_table import apply, as_tensor, is_traced, rule
from maxtool.graph.ops.reduction import cumsum
from maxtool.graph.ops.require import require
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType


@rule("nonzero")
def _infer(counts: TensorType, shape: Shape, size: Dim) -> tuple[TensorType, ...]:
    counted = counts.dtype is DType.int64 and counts.shape == [shape.volume()]
    require(counted, "needs how many there are up to each element, in int64")
    return (TensorType(DType.int64, [size, shape.rank], counts.device),)


def nonzero(x: TensorLike, out_dim: DimLike) -> Tensor:
    """The indices of the elements of ``x`` that are not zero, in the order in which they lie.

    Args:
        x: Any tensor but a scalar; NaN is not zero, and False is.
        out_dim: How many there are. In a graph a new name, which stands for their number from here
            on; a number or a name that is known is checked when the graph runs.

    Returns:
        int64 ``[out_dim, rank]``.

    Raises:
        ValueError: If ``x`` is a scalar, or data of which another number is not zero.
    """
    tensor, size = as_tensor(x), Dim(out_dim)
    if not tensor.rank:
        raise ValueError(f"nonzero({tensor.type}): needs at least one dimension")
    if not is_traced(tensor):
        return _found(tensor, size)
    chosen = tensor if tensor.dtype is DType.bool else not_equal(tensor, 0)
    counts = cumsum(cast(flatten(chosen), DType.int64))
    return apply("nonzero", counts, shape=tensor.shape, size=size)[0]


def _found(x: Tensor, size: Dim) -> Tensor:
    places = np.argwhere(x.to_numpy()).astype(np.int64, copy=False)
    if size.is_static and size != len(places):
        raise ValueError(f"nonzero({x.type}): {len(places)} elements are not zero, not {size}")
    return Tensor(places, device=x.device)
