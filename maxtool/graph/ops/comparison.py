"""Operations whose results are true or false, those on such operands, and the choice by them."""

from __future__ import annotations

from functools import partial

from maxtool.dtype import DType
from maxtool.graph.ops.elementwise import broadcast
from maxtool.graph.ops.operation_table import apply, rule, ruled_by
from maxtool.graph.ops.plain_functions import binary, unary
from maxtool.graph.ops.require import require_bool, require_computed, require_floats
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType

__all__ = ["equal", "greater", "greater_equal", "less", "less_equal", "not_equal"]
__all__ += ["is_inf", "is_nan", "logical_and", "logical_not", "logical_or", "logical_xor", "where"]


def _infer_comparison(left: TensorType, right: TensorType) -> tuple[TensorType, ...]:
    require_computed(left)
    return (TensorType(DType.bool, broadcast(left.shape, right.shape), left.device),)


def _infer_logical(left: TensorType, right: TensorType) -> tuple[TensorType, ...]:
    require_bool(left, right)
    return _infer_comparison(left, right)


def _infer_not(tensor_type: TensorType) -> tuple[TensorType, ...]:
    require_bool(tensor_type)
    return (TensorType(tensor_type.dtype, tensor_type.shape, tensor_type.device),)


def _infer_test(tensor_type: TensorType) -> tuple[TensorType, ...]:
    require_floats(tensor_type)
    return (TensorType(DType.bool, tensor_type.shape, tensor_type.device),)


@rule("where", numbers={0: DType.bool}, alike=slice(1, 3))
def _infer_where(
    condition: TensorType, left: TensorType, right: TensorType
) -> tuple[TensorType, ...]:
    require_bool(condition)
    shape = broadcast(condition.shape, broadcast(left.shape, right.shape))
    return (TensorType(left.dtype, shape, left.device),)


_comparison = partial(binary, _infer_comparison)
_logical = partial(binary, _infer_logical, alike=None)

equal = _comparison("equal", "Return whether ``x == y``: False where either is NaN.")
not_equal = _comparison("not_equal", "Return whether ``x != y``: True where either is NaN.")
greater = _comparison("greater", "Return whether ``x > y``: False where either is NaN.")
greater_equal = _comparison(
    "greater_equal", "Return whether ``x >= y``: False where either is NaN."
)
less = _comparison("less", "Return whether ``x < y``: False where either is NaN.")
less_equal = _comparison("less_equal", "Return whether ``x <= y``: False where either is NaN.")
logical_and = _logical("logical_and", "Return whether both are true.")
logical_or = _logical("logical_or", "Return whether one of the two is true, or both are.")
logical_xor = _logical("logical_xor", "Return whether exactly one of the two is true.")
logical_not = unary(_infer_not, "logical_not", "Return whether ``x`` is false.")
is_inf = unary(_infer_test, "is_inf", "Return whether a float is infinite, of either sign.")
is_nan = unary(_infer_test, "is_nan", "Return whether a float is NaN.")

COMPARISONS = ruled_by(_infer_comparison)
LOGICAL = ruled_by(_infer_logical)
TESTS = ruled_by(_infer_test)


def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> Tensor:
    """``x`` where the condition, a bool, is true, and ``y`` elsewhere; all three broadcast."""
    return apply("where", condition, x, y)[0]
