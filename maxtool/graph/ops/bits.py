"""Operations on the bits of whole numbers, with broadcasting."""

from __future__ import annotations

from functools import partial

from maxtool.dtype import DType
from maxtool.graph.ops.elementwise import broadcast
from maxtool.graph.ops.operation_table import apply, as_tensor, rule, ruled_by
from maxtool.graph.ops.plain_functions import binary, unary
from maxtool.graph.ops.require import require
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType

__all__ = ["bitcast", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor"]
__all__ += ["shift_left", "shift_right"]


def _infer_bits(left: TensorType, right: TensorType) -> tuple[TensorType, ...]:
    require(left.dtype.is_integral(), f"needs whole numbers, not {left.dtype.value}")
    return (TensorType(left.dtype, broadcast(left.shape, right.shape), left.device),)


def _infer_shift(left: TensorType, right: TensorType) -> tuple[TensorType, ...]:
    unsigned = left.dtype.value.startswith("uint")
    require(unsigned, f"needs numbers without a sign, not {left.dtype.value}; cast the operand")
    return _infer_bits(left, right)


def _infer_not(tensor_type: TensorType) -> tuple[TensorType, ...]:
    return _infer_bits(tensor_type, tensor_type)


@rule("bitcast")
def _infer_bitcast(
    tensor_type: TensorType,
    source: DType,  # noqa: ARG001 - what floats are while they are evaluated in float64
    dtype: DType,
) -> tuple[TensorType, ...]:
    sizes = (tensor_type.dtype.size_in_bytes, dtype.size_in_bytes)
    require(sizes[0] == sizes[1], f"{dtype.value} has {sizes[1]} bytes, not {sizes[0]}")
    known = DType.bool not in (tensor_type.dtype, dtype)
    require(known, "the bits of bool mean nothing; cast the operand")
    return (TensorType(dtype, tensor_type.shape, tensor_type.device),)


_bitwise = partial(binary, _infer_bits)
_shift = partial(binary, _infer_shift)

bitwise_and = _bitwise("bitwise_and", "The bits that both have.")
bitwise_or = _bitwise("bitwise_or", "The bits that one of the two has, or both have.")
bitwise_xor = _bitwise("bitwise_xor", "The bits that exactly one of the two has.")
bitwise_not = unary(_infer_not, "bitwise_not", "The bits that ``x`` has not.")
shift_left = _shift(
    "shift_left", "The bits of ``x``, which has no sign, ``y`` places higher; 0 beyond the highest."
)
shift_right = _shift(
    "shift_right", "The bits of ``x``, which has no sign, ``y`` places lower; 0 below the lowest."
)

BITWISE = ruled_by(_infer_bits, _infer_shift, _infer_not)


def bitcast(x: TensorLike, dtype: DType) -> Tensor:
    """The bits of ``x`` as elements of another type of the same size.

    Raises:
        ValueError: If an element of the type has another size, or one of the types is bool.
    """
    tensor = as_tensor(x)
    return apply("bitcast", tensor, source=tensor.dtype, dtype=dtype)[0]
