"""Operations between devices that run one graph, each on its part of the weights."""

from __future__ import annotations

from maxtool.graph.ops.require import require
from maxtool.graph.ops.table import apply, define
from maxtool.graph.tensor import Tensor
from maxtool.graph.type import TensorType


def _infer_all_reduce(kind: TensorType, count: int) -> tuple[TensorType, ...]:
    _require_floats(kind, count)
    return (TensorType(kind.dtype, kind.shape, kind.device),)


def _infer_all_gather(kind: TensorType, count: int) -> tuple[TensorType, ...]:
    _require_floats(kind, count)
    return (TensorType(kind.dtype, [count, *kind.shape], kind.device),)


def _require_floats(kind: TensorType, count: int) -> None:
    require(kind.dtype.value == "float32", "operands are float32")
    require(count > 0, f"there are {count} devices")


define("all_reduce", _infer_all_reduce)
define("all_gather", _infer_all_gather)


def all_reduce(x: Tensor, count: int) -> Tensor:
    """The sum of what ``x`` is on each of ``count`` devices, the same on all of them.

    Args:
        x: float32, of one shape everywhere.
        count: How many devices run this graph.
    """
    return x if count == 1 else apply("all_reduce", x, count=count)[0]


def all_gather(x: Tensor, count: int) -> Tensor:
    """What ``x`` is on each of ``count`` devices, one after the other along the last dimension.

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
