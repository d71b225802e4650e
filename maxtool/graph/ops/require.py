"""Requirements of operations on the types of their operands."""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.graph.dim import Shape
from maxtool.graph.type import TensorType

NARROW_FLOATS = (DType.float16, DType.bfloat16)
FLOATS = (DType.float32, DType.float16, DType.bfloat16, DType.float64)


def require(condition: bool, message: str) -> None:
    """Raise a ``ValueError`` with the message, unless the condition holds."""
    if not condition:
        raise ValueError(message)


def require_bool(*kinds: TensorType) -> None:
    """Raise a ``ValueError`` that names the first element type that is not bool."""
    for tensor_type in kinds:
        named = f"needs bool, not {tensor_type.dtype.value}; compare with 0 first"
        require(tensor_type.dtype is DType.bool, named)


def require_computed(*kinds: TensorType) -> None:
    """Raise a ``ValueError`` that names the first 8-bit float, which is for storage only."""
    for tensor_type in kinds:
        wide = not tensor_type.dtype.value.startswith("float8")
        require(wide, f"needs a wider type than {tensor_type.dtype.value}; cast the operand")


def require_numbers(*kinds: TensorType) -> None:
    """Raise a ``ValueError`` that names the first element type that is not computed with."""
    for tensor_type in kinds:
        require(tensor_type.dtype is not DType.bool, "needs numbers, not bool; cast the operand")
        require_computed(tensor_type)


def require_floats(*kinds: TensorType) -> None:
    """Raise a ``ValueError`` that names the first element type that is no float."""
    for tensor_type in kinds:
        named = f"needs floating-point operands, not {tensor_type.dtype.value}"
        require(tensor_type.dtype in FLOATS, named)


def require_float32(*kinds: TensorType) -> None:
    """Raise a ``ValueError`` unless all operands are float32."""
    same = all(tensor_type.dtype is DType.float32 for tensor_type in kinds)
    require(same, "operands are float32")


def require_position(position: TensorType) -> None:
    """Raise a ``ValueError`` unless it is an int32 ``[1]``."""
    require(position.dtype is DType.int32 and position.shape == [1], "the position is int32[1]")


def require_heads(tensor_type: TensorType) -> Shape:
    """The shape of queries, keys or values; a ``ValueError`` unless heads and widths are known."""
    require(tensor_type.rank == 4, "the input is [batch, seq, heads, head_dim]")
    require(tensor_type.shape[2:].is_static, "the number of heads and their width are known")
    return tensor_type.shape
