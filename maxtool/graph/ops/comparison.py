"""Operations whose results are true or false, those on such operands, and the choice by them."""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.graph.ops.elementwise import broadcast
from maxtool.graph.ops.operation_table import apply, define
from maxtool.graph.ops.require import require, require_computed, require_floats
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType

COMPARISONS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")
LOGICAL = ("logical_and", "logical_or", "logical_xor")
TESTS = ("is_inf", "is_nan")


def _infer_comparison(left: TensorType, right: TensorType) -> tuple[TensorType, ...]:
    require_computed(left)
    return (TensorType(DType.bool, broadcast(left.shape, right.shape), left.device),)


def _infer_logical(left: TensorType, right: TensorType) -> tuple[TensorType, ...]:
    _require_bool(left, right)
    return _infer_comparison(left, right)


def _infer_not(tensor_type: TensorType) -> tuple[TensorType, ...]:
    _require_bool(tensor_type)
    return (TensorType(tensor_type.dtype, tensor_type.shape, tensor_type.device),)


def _infer_test(tensor_type: TensorType) -> tuple[TensorType, ...]:
    require_floats(tensor_type)
    return (TensorType(DType.bool, tensor_type.shape, tensor_type.device),)


def _infer_where(
    condition: TensorType, left: TensorType, right: TensorType
) -> tuple[TensorType, ...]:
    _require_bool(condition)
    shape = broadcast(condition.shape, broadcast(left.shape, right.shape))
    return (TensorType(left.dtype, shape, left.device),)


def _require_bool(*kinds: TensorType) -> None:
    for tensor_type in kinds:
        named = f"needs bool, not {tensor_type.dtype.value}; compare with 0 first"
        require(tensor_type.dtype is DType.bool, named)


for _name in COMPARISONS:
    define(_name, _infer_comparison, alike=slice(0, 2))
for _name in LOGICAL:
    define(_name, _infer_logical)
for _name in TESTS:
    define(_name, _infer_test)
define("logical_not", _infer_not)
define("where", _infer_where, numbers={0: DType.bool}, alike=slice(1, 3))


def equal(x: TensorLike, y: TensorLike) -> Tensor:
    """Return whether ``x == y``: False where either is NaN."""
    return apply("equal", x, y)[0]


def not_equal(x: TensorLike, y: TensorLike) -> Tensor:
    """Return whether ``x != y``: True where either is NaN."""
    return apply("not_equal", x, y)[0]


def greater(x: TensorLike, y: TensorLike) -> Tensor:
    """Return whether ``x > y``: False where either is NaN."""
    return apply("greater", x, y)[0]


def greater_equal(x: TensorLike, y: TensorLike) -> Tensor:
    """Return whether ``x >= y``: False where either is NaN."""
    return apply("greater_equal", x, y)[0]


def less(x: TensorLike, y: TensorLike) -> Tensor:
    """Return whether ``x < y``: False where either is NaN."""
    return apply("less", x, y)[0]


def less_equal(x: TensorLike, y: TensorLike) -> Tensor:
    """Return whether ``x <= y``: False where either is NaN."""
    return apply("less_equal", x, y)[0]


def logical_and(x: TensorLike, y: TensorLike) -> Tensor:
    """Return whether both are true."""
    return apply("logical_and", x, y)[0]


def logical_or(x: TensorLike, y: TensorLike) -> Tensor:
    """Return whether one of the two is true, or both are."""
    return apply("logical_or", x, y)[0]


def logical_xor(x: TensorLike, y: TensorLike) -> Tensor:
    """Return whether exactly one of the two is true."""
    return apply("logical_xor", x, y)[0]


def logical_not(x: TensorLike) -> Tensor:
    """Return whether ``x`` is false."""
    return apply("logical_not", x)[0]


def is_inf(x: TensorLike) -> Tensor:
    """Return whether a float is infinite, of either sign."""
    return apply("is_inf", x)[0]


def is_nan(x: TensorLike) -> Tensor:
    """Return whether a float is NaN."""
    return apply("is_nan", x)[0]


def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> Tensor:
    """``x`` where the condition, a bool, is true, and ``y`` elsewhere; all three broadcast."""
    return apply("where", condition, x, y)[0]
