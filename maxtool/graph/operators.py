"""Python's operators on tensors, each the operation of :mod:`maxtool.graph.ops` of that name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from maxtool.graph.dim import Dim

if TYPE_CHECKING:
    from maxtool.graph.tensor import Tensor, TensorLike

Binary: TypeAlias = "Callable[[Any, TensorLike], Tensor]"
NUMBERS = (np.ndarray, np.generic, bool, int, float, list, tuple)
Unary: TypeAlias = "Callable[[Any], Tensor]"


def call(name: str, *operands: Any, **options: Any) -> Any:  # noqa: ANN401 - any operation's
    """What an operation gives; the operations need tensors, so they are imported here."""
    from maxtool.graph import ops

    return getattr(ops, name)(*operands, **options)


def tensor_of(name: str, *operands: Any, **options: Any) -> Tensor:  # noqa: ANN401
    """What an operation with one result gives."""
    result: Tensor = call(name, *operands, **options)
    return result


def _is_operand(other: object) -> bool:
    """Whether there are numbers in it; Python itself says what comes of anything else."""
    from maxtool.graph.tensor import Tensor

    return isinstance(other, (Tensor, Dim, *NUMBERS))


def _binary(name: str) -> Binary:
    def operator(self: Tensor, other: TensorLike) -> Tensor:
        return tensor_of(name, self, other) if _is_operand(other) else NotImplemented

    return operator


def _reflected(name: str) -> Binary:
    def operator(self: Tensor, other: TensorLike) -> Tensor:
        return tensor_of(name, other, self) if _is_operand(other) else NotImplemented

    return operator


def _unary(name: str) -> Unary:
    def operator(self: Tensor) -> Tensor:
        return tensor_of(name, self)

    return operator


class Operators:
    """What makes ``+``, ``<``, ``~`` and the like of a class.

    ``==`` compares elements, so a tensor's place in sets and dictionaries is by identity.
    """

    __slots__ = ()

    __add__, __radd__ = _binary("add"), _reflected("add")
    __sub__, __rsub__ = _binary("sub"), _reflected("sub")
    __mul__, __rmul__ = _binary("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _binary("div"), _reflected("div")
    __floordiv__, __rfloordiv__ = _binary("floordiv"), _reflected("floordiv")
    __mod__, __rmod__ = _binary("mod"), _reflected("mod")
    __pow__, __rpow__ = _binary("pow"), _reflected("pow")
    __matmul__, __rmatmul__ = _binary("matmul"), _reflected("matmul")
    __and__, __rand__ = _binary("logical_and"), _reflected("logical_and")
    __or__, __ror__ = _binary("logical_or"), _reflected("logical_or")
    __xor__, __rxor__ = _binary("logical_xor"), _reflected("logical_xor")

    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")
    __eq__ = _binary("equal")  # type: ignore[assignment]
    __ne__ = _binary("not_equal")  # type: ignore[assignment]
    __hash__ = object.__hash__

    def __pos__(self) -> Self:
        return self

    __neg__, __abs__, __invert__ = _unary("negative"), _unary("abs"), _unary("logical_not")
    __round__, __floor__ = _unary("round"), _unary("floor")
    __ceil__, __trunc__ = _unary("ceil"), _unary("trunc")
