"""What can be asked of a tensor by a method, each the operation of ``maxtool.graph.ops``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

from maxtool.dtype import DType
from maxtool.graph.device import DeviceRef
from maxtool.graph.dim import DimLike, ShapeLike
from maxtool.graph.operators import Operators, call, tensor_of

if TYPE_CHECKING:
    from maxtool.graph.tensor import Tensor, TensorLike

# Along one or several dimensions, which stay with size 1, or (None) over all elements, to ``[1]``.
Axes: TypeAlias = "SupportsIndex | Sequence[SupportsIndex] | None"
# A number, a slice, ``...``, ``None``, places, a mask, or a tuple of them; see ``slice_tensor``.
Index: TypeAlias = Any


class Methods(Operators):
    """The methods of a tensor that are operations."""

    __slots__ = ()

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
        """Some dimensions joined to one."""
        return tensor_of("flatten", self, start_dim, end_dim)

    def squeeze(self, axis: SupportsIndex) -> Tensor:
        """Without a dimension of size 1."""
        return tensor_of("squeeze", self, axis)

    def unsqueeze(self, axis: SupportsIndex) -> Tensor:
        """With a dimension of size 1 more."""
        return tensor_of("unsqueeze", self, axis)

    def broadcast_to(self, shape: ShapeLike) -> Tensor:
        """Repeated along dimensions that are missing or 1."""
        return tensor_of("broadcast_to", self, shape)

    def rebind(self, shape: ShapeLike, message: str = "") -> Tensor:
        """With a claim about the dimensions, which is checked when the graph runs."""
        return tensor_of("rebind", self, shape, message)

    def split(
        self,
        split_size_or_sections: Sequence[DimLike] | SupportsIndex,
        axis: SupportsIndex = 0,
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
        """Where the largest element along a dimension is, which stays with size 1."""
        return tensor_of("argmax", self, axis)

    def argmin(self, axis: SupportsIndex | None = -1) -> Tensor:
        """Where the smallest element along a dimension is, which stays with size 1."""
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
