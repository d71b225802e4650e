"""Operations between devices that run one graph, each on its part of the weights."""

from __future__ import annotations

from maxtool.graph.ops.operation_table import apply, rule
from maxtool.graph.ops.require import require
from maxtool.graph.tensor import Tensor
from maxtool.graph.type import TensorType


@rule("all_reduce")
def _infer_all_reduce(tensor_type: TensorType, count: int) -> tuple[TensorType, ...]:
    (gathered,) = _infer_all_gather(tensor_type, count)
    return (TensorType(gathered.dtype, gathered.shape[1:], gathered.device),)


@rule("all_gather")
def _infer_all_gather(tensor_type: TensorType, count: int) -> tuple[TensorType, ...]:
    require(tensor_type.dtype.value == "float32", "operands are float32")
    require(count > 0, f"there are {count} devices")
    return (TensorType(tensor_type.dtype, [count, *tensor_type.shape], tensor_type.device),)


def all_reduce(x: Tensor, count: int) -> Tensor:
    """The sum of what ``x`` is on each of ``count`` devices, the same on all of them.

    Args:
        x: float32, of one shape everywhere.
        count: How many devices run this graph.
    """
    return x if count == 1 else apply("all_reduce", x, count=count)[0]


def all_gather(x: Tensor, count: int) -> Tensor:
    """Concatenate ``x`` of each of ``count`` devices along the last dimension.

    Args:
        x: float32, of one shape everywhere.
        count: How many devices run this graph.
    """
    if count == 1:
        return x
    (stacked,) = apply("all_gather", x, count=count)
    rank = x.rank
    beside = stacked.permute([*range(1, rank), 0, rank])
    return beside.reshape([*x.shape[:-1], x.shape[-1] * count])
