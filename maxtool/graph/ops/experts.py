"""A mixture of experts: rows that choose the matrices they are multiplied with."""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.graph.dim import Shape
from maxtool.graph.ops.neural import WEIGHT_DTYPES
from maxtool.graph.ops.operation_table import apply, rule
from maxtool.graph.ops.require import require, require_float32
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType


@rule("expert_linear")
def _infer_linear(x: TensorType, weight: TensorType, chosen: TensorType) -> tuple[TensorType, ...]:
    require_float32(x)
    named = weight.dtype.value
    require(weight.dtype in WEIGHT_DTYPES, f"no kernel for a weight in {named}")
    require(weight.rank == 3 and weight.shape.is_static, "the weight is [experts, out, in], known")
    require(0 not in weight.shape, "the weight is empty")
    require(chosen.dtype is DType.int64, "the choices are int64")
    known = chosen.rank > 0 and chosen.shape[-1].is_static and chosen.shape[-1] != 0
    require(known, "how many choices there are is known")
    _, out, width = weight.shape
    rows = [Shape([*sizes, width]) for sizes in (chosen.shape[:-1], chosen.shape)]
    require(x.shape in rows, f"the input is {rows[0]} or {rows[1]}")
    return (TensorType(x.dtype, [*chosen.shape, out], x.device),)


@rule("weighted_sum")
def _infer_sum(x: TensorType, shares: TensorType) -> tuple[TensorType, ...]:
    require_float32(x, shares)
    require(x.rank >= 2 and x.shape[:-1] == shares.shape, "there is a share for each row")
    return (TensorType(x.dtype, [*x.shape[:-2], x.shape[-1]], x.device),)


def expert_linear(x: TensorLike, weight: Tensor, chosen: TensorLike) -> Tensor:
    """``x @ weight[expert].T`` for each expert that a row has chosen.

    Args:
        x: ``[..., in]``, one row for all of its choices, or ``[..., used, in]``, one for each.
        weight: ``[experts, out, in]``, float32, float16 or bfloat16.
        chosen: ``[..., used]``, int64: numbers of experts. Where one is no expert's, the first or
            last one is taken.

    Returns:
        ``[..., used, out]``.
    """
    return apply("expert_linear", x, weight, chosen)[0]


def weighted_sum(x: TensorLike, shares: TensorLike) -> Tensor:
    """``x [..., used, n]`` added up over ``used``, each with its share ``[..., used]``."""
    return apply("weighted_sum", x, shares)[0]
