"""``Tensor``: one class for a value that is here and for a value that a graph will compute.

Its operators and methods are the operations of :mod:`maxtool.graph.ops` of these names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from maxtool.dtype import DType
from maxtool.graph.device import DeviceRef
from maxtool.graph.dim import Dim, DimLike, ShapeLike
from maxtool.graph.operators import call
from maxtool.graph.tensor_base import TensorBase

TensorLike: TypeAlias = "Tensor | npt.ArrayLike"
# Along one or several dimensions, which stay with size 1, or (None) over all elements, to ``[1]``.
Axes: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | None
# A number, a slice, ``...``, ``None``, places, a mask, or a tuple of them; see ``slice_tensor``.
Index: TypeAlias = Any
Binary: TypeAlias = "Callable[[Any, TensorLike], Tensor]"
Unary: TypeAlias = "Callable[[Any], Tensor]"

NUMBERS = (np.ndarray, np.generic, bool, int, float, list, tuple)


def tensor_of(name: str, *operands: Any, **options: Any) -> Tensor:  # noqa: ANN401
    """Call an operation with one result."""
    result: Tensor = call(name, *operands, **options)
    return result


def _is_operand(other: object) -> bool:
    """Return whether there are numbers in it; Python itself says what comes of anything else."""
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


class Tensor(TensorBase):
    """A tensor that holds data, or stands for a value of a graph being traced.

    Args:
        data: An array, a (nested) sequence of numbers or a number. Arrays are kept, not copied.
        dtype: The element type; that of an array when absent, float32 for Python's numbers.
        device: Where it lives; the host when absent. Numbers for an accelerator wait on the host
            until something computes with them there, so that graphs can be traced without one;
            :meth:`to` copies them at once.

    Raises:
        ValueError: If a type of whole numbers has not such as Python's that are given.
    """

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
    # Elements are compared, so a tensor's place in sets and dictionaries is by identity.
    __eq__ = _binary("equal")  # type: ignore[assignment]
    __ne__ = _binary("not_equal")  # type: ignore[assignment]
    __hash__ = object.__hash__

    def __pos__(self) -> Self:
        return self

    __neg__, __abs__, __invert__ = _unary("negative"), _unary("abs"), _unary("logical_not")
    __round__, __floor__ = _unary("round"), _unary("floor")
    __ceil__, __trunc__ = _unary("ceil"), _unary("trunc")

    @classmethod
    def randn(
        cls, shape: ShapeLike, *, dtype: DType | None = None, device: DeviceRef | None = None
    ) -> Tensor:
        """Numbers drawn from the standard normal distribution; see `maxtool.graph.random`."""
        return tensor_of("normal", shape, dtype=dtype, device=device)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: Index) -> Tensor:
        return tensor_of("slice_tensor", self, index)

    @property
    def T(self) -> Tensor:  # noqa: N802 - the field's name
        """The last two dimensions swapped."""
        return tensor_of("transpose", self, -1, -2)

    def transpose(self, dim1: SupportsIndex, dim2: SupportsIndex) -> Tensor:
        """Two dimensions swapped."""
        return tensor_of("transpose", self, dim1, dim2)

    def permute(self, dims: Sequence[SupportsIndex]) -> Tensor:
        """The dimensions in another order."""
        return tensor_of("permute", self, dims)

    def reshape(self, shape: Sequence[DimLike]) -> Tensor:
        """The same elements in another shape; one size may be -1."""
        return tensor_of("reshape", self, shape)

    def flatten(self, start_dim: SupportsIndex = 0, end_dim: SupportsIndex = -1) -> Tensor:
        """Join some dimensions into one."""
        return tensor_of("flatten", self, start_dim, end_dim)

    def squeeze(self, axis: SupportsIndex) -> Tensor:
        """Remove a dimension of size 1."""
        return tensor_of("squeeze", self, axis)

    def unsqueeze(self, axis: SupportsIndex) -> Tensor:
        """Insert a dimension of size 1."""
        return tensor_of("unsqueeze", self, axis)

    def broadcast_to(self, shape: ShapeLike) -> Tensor:
        """Repeated along dimensions that are missing or 1."""
        return tensor_of("broadcast_to", self, shape)

    def rebind(self, shape: ShapeLike, message: str = "") -> Tensor:
        """Assert a claim about the dimensions, which is checked when the graph runs."""
        return tensor_of("rebind", self, shape, message)

    def split(
        self, split_size_or_sections: Sequence[DimLike] | SupportsIndex, axis: SupportsIndex = 0
    ) -> list[Tensor]:
        """Cut into pieces along a dimension."""
        pieces: list[Tensor] = call("split", self, split_size_or_sections, axis)
        return pieces

    def cast(self, dtype: DType) -> Tensor:
        """The same elements in another type."""
        return tensor_of("cast", self, dtype)

    def clip(self, *, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor:  # noqa: A002
        """The elements, at least ``min`` and at most ``max``, where these are given."""
        return tensor_of("clamp", self, min, max)

    def sum(self, axis: Axes = -1) -> Tensor:
        """The sum along dimensions, which stay with size 1."""
        return tensor_of("sum", self, axis)

    def mean(self, axis: Axes = -1) -> Tensor:
        """The mean along dimensions, which stay with size 1."""
        return tensor_of("mean", self, axis)

    def var(self, axis: Axes = -1, correction: float = 0) -> Tensor:
        """The mean squared distance from the mean along dimensions, which stay with size 1."""
        return tensor_of("variance", self, axis, correction)

    def std(self, axis: Axes = -1, correction: float = 0) -> Tensor:
        """The square root of :meth:`var`."""
        return tensor_of("std", self, axis, correction)

    def prod(self, axis: Axes = -1) -> Tensor:
        """The product along dimensions, which stay with size 1."""
        return tensor_of("prod", self, axis)

    def max(self, axis: Axes = -1) -> Tensor:
        """The largest element along dimensions, which stay with size 1."""
        return tensor_of("max", self, axis=axis)

    def min(self, axis: Axes = -1) -> Tensor:
        """The smallest element along dimensions, which stay with size 1."""
        return tensor_of("min", self, axis=axis)

    def argmax(self, axis: SupportsIndex | None = -1) -> Tensor:
        """Return the index of the largest element along a dimension, which stays with size 1."""
        return tensor_of("argmax", self, axis)

    def argmin(self, axis: SupportsIndex | None = -1) -> Tensor:
        """Return the index of the smallest element along a dimension, which stays with size 1."""
        return tensor_of("argmin", self, axis)

    def cumsum(self, axis: SupportsIndex = -1) -> Tensor:
        """The sums up to each element along a dimension."""
        return tensor_of("cumsum", self, axis)

    def to(self, device: DeviceRef) -> Tensor:
        """The same elements on another device."""
        return tensor_of("transfer_to", self, device)

    def print(self, label: str = "debug_tensor") -> None:
        """Print it with a label: now, or when the graph runs and comes to this place."""
        call("print", self, label)
