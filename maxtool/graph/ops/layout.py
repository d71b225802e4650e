"""Operations that give the same elements another shape or order, and change none."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import SupportsIndex

from maxtool.graph.dim import Dim, DimLike, Shape, ShapeLike
from maxtool.graph.ops.axes import axis_of
from maxtool.graph.ops.elementwise import broadcast
from maxtool.graph.ops.operation_table import apply, as_tensor, is_traced, rule
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType


@rule("reshape")
def _infer_reshape(tensor_type: TensorType, shape: Shape) -> tuple[TensorType, ...]:
    if tensor_type.shape.volume() != shape.volume():
        raise ValueError(f"{tensor_type.shape} and {shape} have different numbers of elements")
    return (TensorType(tensor_type.dtype, shape, tensor_type.device),)


@rule("permute")
def _infer_permute(tensor_type: TensorType, dims: tuple[int, ...]) -> tuple[TensorType, ...]:
    if sorted(dims) != list(range(tensor_type.rank)):
        raise ValueError(f"{list(dims)} does not name each of {tensor_type.rank} dimensions once")
    sizes = [tensor_type.shape[dim] for dim in dims]
    return (TensorType(tensor_type.dtype, sizes, tensor_type.device),)


@rule("broadcast_to")
def _infer_broadcast(tensor_type: TensorType, shape: Shape) -> tuple[TensorType, ...]:
    if tensor_type.rank > shape.rank or broadcast(tensor_type.shape, shape) != shape:
        raise ValueError(f"{tensor_type.shape} does not broadcast to {shape}")
    return (TensorType(tensor_type.dtype, shape, tensor_type.device),)


@rule("rebind")
def _infer_rebind(tensor_type: TensorType, shape: Shape, message: str) -> tuple[TensorType, ...]:  # noqa: ARG001
    if tensor_type.rank != shape.rank:
        raise ValueError(f"{shape} has {shape.rank} dimensions, not {tensor_type.rank}")
    for old, new in zip(tensor_type.shape, shape, strict=True):
        if old.is_static and new.is_static and old != new:
            raise ValueError(f"dimension {old} is never {new}")
    return (TensorType(tensor_type.dtype, shape, tensor_type.device),)


def reshape(x: TensorLike, shape: Sequence[DimLike]) -> Tensor:
    """The elements of ``x``, in the same order, in another shape.

    Args:
        x: Any tensor.
        shape: The dimensions; one of them may be -1, and is what is left for it.

    Raises:
        ValueError: If the number of elements is another one, or is not known to be the same.
    """
    tensor = as_tensor(x)
    return apply("reshape", tensor, shape=_completed(tensor, shape))[0]


def _completed(x: Tensor, shape: Sequence[DimLike]) -> Shape:
    """``shape`` with a size in place of -1."""
    open_places = [place for place, dim in enumerate(shape) if isinstance(dim, int) and dim == -1]
    if not open_places:
        return Shape(shape)
    known = Shape([dim for place, dim in enumerate(shape) if place not in open_places])
    total, part = x.shape.volume(), known.volume()
    try:
        if len(open_places) > 1 or part == 0:
            raise ValueError("there is no one size for -1")
        left = total // part
        if left * part != total:
            raise ValueError(f"{total} elements are not a multiple of {part}")
    except ValueError as error:
        raise ValueError(f"reshape({x.type}) to {list(map(str, shape))}: {error}") from None
    return Shape([left if index in open_places else dim for index, dim in enumerate(shape)])


def flatten(x: TensorLike, start_dim: SupportsIndex = 0, end_dim: SupportsIndex = -1) -> Tensor:
    """The dimensions from ``start_dim`` to ``end_dim``, both included, joined to one.

    Raises:
        ValueError: If there are no such dimensions, or the second comes before the first.
    """
    tensor = as_tensor(x)
    if not tensor.rank:
        return reshape(tensor, [1])
    first, last = (axis_of("flatten", tensor, axis) for axis in (start_dim, end_dim))
    if first > last:
        raise ValueError(f"flatten({tensor.type}): dimension {first} comes after {last}")
    joined = tensor.shape[first : last + 1].volume()
    return reshape(tensor, [*tensor.shape[:first], joined, *tensor.shape[last + 1 :]])


def squeeze(x: TensorLike, axis: SupportsIndex) -> Tensor:
    """``x`` without a dimension of size 1.

    Raises:
        ValueError: If there is no such dimension, or its size is not 1.
    """
    tensor = as_tensor(x)
    dim_index = axis_of("squeeze", tensor, axis)
    if tensor.shape[dim_index] != 1:
        raise ValueError(f"squeeze({tensor.type}): dimension {dim_index} is not 1")
    return reshape(tensor, [*tensor.shape[:dim_index], *tensor.shape[dim_index + 1 :]])


def unsqueeze(x: TensorLike, axis: SupportsIndex) -> Tensor:
    """``x`` with a dimension of size 1 more, at ``axis`` of the result.

    Raises:
        ValueError: If the result has no such dimension.
    """
    tensor = as_tensor(x)
    dim_index = axis_of("unsqueeze", tensor, axis, more=1)
    return reshape(tensor, [*tensor.shape[:dim_index], 1, *tensor.shape[dim_index:]])


def permute(x: TensorLike, dims: Sequence[SupportsIndex]) -> Tensor:
    """The dimensions of ``x`` in the order ``dims``; negative ones count from the last."""
    tensor = as_tensor(x)
    order = tuple(_from_first(index(dim), tensor.rank) for dim in dims)
    return apply("permute", tensor, dims=order)[0]


def transpose(x: TensorLike, axis_1: SupportsIndex, axis_2: SupportsIndex) -> Tensor:
    """Two dimensions of ``x`` swapped; negative ones count from the last.

    Raises:
        ValueError: If there is no such dimension.
    """
    tensor = as_tensor(x)
    first, second = (_from_first(index(axis), tensor.rank) for axis in (axis_1, axis_2))
    swapped = {first: second, second: first}
    if not all(0 <= dim < tensor.rank for dim in swapped):
        raise ValueError(
            f"transpose({tensor.type}): there are no dimensions {int(axis_1)} and {int(axis_2)}"
        )
    return permute(tensor, [swapped.get(dim, dim) for dim in range(tensor.rank)])


def _from_first(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def broadcast_to(x: TensorLike, shape: ShapeLike) -> Tensor:
    """``x`` repeated along dimensions that it lacks or has with size 1."""
    return apply("broadcast_to", x, shape=Shape(shape))[0]


def rebind(x: TensorLike, shape: ShapeLike, message: str = "") -> Tensor:
    """``x`` with a claim about its dimensions, which is checked when the graph runs.

    Args:
        x: Any tensor.
        shape: The dimensions. A name that no input has stands for the size from here on; any other
            dimension is what the size must be.
        message: What the error says where it is not.

    Raises:
        ValueError: If a size that is known is another one.
    """
    tensor = as_tensor(x)
    sizes = Shape(shape)
    if is_traced(tensor) or sizes.rank != tensor.rank:
        return apply("rebind", tensor, shape=sizes, message=message)[0]
    return _rebound(tensor, sizes, message)


def _rebound(x: Tensor, shape: Shape, message: str) -> Tensor:
    """Tensors with data keep their sizes; the claim is checked now."""
    sizes = {
        dim.value: int(size)
        for dim, size in zip(shape, x.shape, strict=True)
        if isinstance(dim.value, str)
    }
    claimed = [Dim(dim.size(sizes)) if set(dim.names()) <= set(sizes) else dim for dim in shape]
    if claimed != list(x.shape):
        said = f": {message}" if message else ""
        raise ValueError(f"rebind({x.type}): the shape is not {shape}{said}")
    return x
