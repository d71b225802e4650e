"""What operations ask of the types of their operands."""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.graph.type import TensorType

FLOATS = (DType.float32, DType.float16, DType.bfloat16, DType.float64)


def require(condition: bool, message: str) -> None:
    """Raise a ``ValueError`` with the message, unless the condition holds."""
    if not condition:
        raise ValueError(message)


def require_floats(*kinds: TensorType) -> None:
    """Raise a ``ValueError`` that names the first element type that is no float."""
    for kind in kinds:
        require(kind.dtype in FLOATS, f"needs floating-point operands, not {kind.dtype.value}")
