"""Numbers up to a count that a tensor says, which gives a size a name that only a call knows."""

from __future__ import annotations

import numpy as np

from maxtool.dtype import DType
from maxtool.graph.dim import Dim, DimLike
from maxtool.graph.ops.elementwise import maximum
from maxtool.graph.ops.operation_table import apply, as_tensor, is_traced, rule
from maxtool.graph.ops.require import require
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType


@rule("counted")
def _infer(count: TensorType, size: Dim) -> tuple[TensorType, ...]:
    require(count.dtype is DType.int64 and not count.rank, "the count is an int64 of rank 0")
    return (TensorType(DType.int64, [size], count.device),)


def counted(count: TensorLike, out_dim: DimLike) -> Tensor:
    """The numbers from 0 up to, and without, ``count``; none if that is negative.

    Args:
        count: int64, of rank 0.
        out_dim: How many there are. In a graph a new name, which stands for the count from here
            on; a number or a name that is known is checked when the graph runs.

    Returns:
        int64 ``[out_dim]``.

    Raises:
        ValueError: If ``count`` is something else, or data that is another number.
    """
    tensor, size = as_tensor(count), Dim(out_dim)
    if is_traced(tensor):
        return apply("counted", maximum(tensor, 0), size=size)[0]
    _infer(tensor.type, size)
    numbers = np.arange(int(tensor.to_numpy()), dtype=np.int64)
    if size.is_static and size != len(numbers):
        raise ValueError(f"counted({tensor.type}): {len(numbers)} numbers, not {size}")
    return Tensor(numbers, device=tensor.device)
