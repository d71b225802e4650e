"""Elements read from, or written to, places that tensors of whole numbers say.

A negative place counts from the last element. Places that are known now must exist; a place that is
computed in a graph and does not exist is read at the nearest end, and what would be written there
is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex

import numpy as np

from maxtool.dtype import DType
from maxtool.graph.dim import Dim
from maxtool.graph.ops.axes import axis_of, differ_only
from maxtool.graph.ops.elementwise import cast
from maxtool.graph.ops.operation_table import apply, as_operand, as_tensor, is_traced, rule
from maxtool.graph.ops.require import NARROW_FLOATS, require, require_numbers
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType


@rule("gather")
def _infer_gather(tensor_type: TensorType, places: TensorType, axis: int) -> tuple[TensorType, ...]:
    _require_places(places)
    _require_something(tensor_type, places, axis)
    sizes = [*tensor_type.shape[:axis], *places.shape, *tensor_type.shape[axis + 1 :]]
    return (TensorType(tensor_type.dtype, sizes, tensor_type.device),)


@rule("gather_nd")
def _infer_gather_nd(
    tensor_type: TensorType, places: TensorType, batch: int
) -> tuple[TensorType, ...]:
    depth = _depth(tensor_type, places, batch)
    same = tensor_type.shape[:batch] == places.shape[:batch]
    require(same, f"the first {batch} dimensions differ")
    for axis in range(batch, batch + depth):
        _require_something(tensor_type, places, axis)
    sizes = [*places.shape[:-1], *tensor_type.shape[batch + depth :]]
    return (TensorType(tensor_type.dtype, sizes, tensor_type.device),)


@rule("scatter")
def _infer_scatter(
    tensor_type: TensorType, updates: TensorType, places: TensorType, axis: int
) -> tuple[TensorType, ...]:
    _require_places(places)
    _require_same_dtype(tensor_type, updates)
    require(updates.shape == places.shape, "there is one update for each place")
    same = differ_only(axis, tensor_type.shape, places.shape)
    require(same, f"only dimension {axis} of the places may differ")
    return (TensorType(tensor_type.dtype, tensor_type.shape, tensor_type.device),)


@rule("scatter_add")
def _infer_scatter_add(
    tensor_type: TensorType, updates: TensorType, places: TensorType, axis: int
) -> tuple[TensorType, ...]:
    require_numbers(tensor_type)
    require(tensor_type.dtype not in NARROW_FLOATS, "sums are in float32; cast the operands")
    return _infer_scatter(tensor_type, updates, places, axis)


@rule("scatter_nd")
def _infer_scatter_nd(
    tensor_type: TensorType, updates: TensorType, places: TensorType
) -> tuple[TensorType, ...]:
    depth = _depth(tensor_type, places, 0)
    _require_same_dtype(tensor_type, updates)
    wanted = places.shape[:-1] + tensor_type.shape[depth:]
    require(updates.shape == wanted, f"the updates are {wanted}")
    return (TensorType(tensor_type.dtype, tensor_type.shape, tensor_type.device),)


def _depth(tensor_type: TensorType, places: TensorType, batch: int) -> int:
    """Return the number of dimensions that a row of indices selects from."""
    _require_places(places)
    known = places.rank > batch and places.shape[-1].is_static
    require(known, "the last dimension of the places is known")
    depth = int(places.shape[-1])
    most = tensor_type.rank - batch
    require(1 <= depth <= most, f"a place has 1 to {most} numbers")
    return depth


def _require_places(places: TensorType) -> None:
    named = f"places are whole numbers, not {places.dtype.value}"
    require(places.dtype.is_integral(), named)


def _require_same_dtype(tensor_type: TensorType, updates: TensorType) -> None:
    require(tensor_type.dtype is updates.dtype, f"updates are {tensor_type.dtype.value}; cast them")


def _require_something(tensor_type: TensorType, places: TensorType, axis: int) -> None:
    nothing = tensor_type.shape[axis] == 0 and 0 not in places.shape
    require(not nothing, f"there is no element along dimension {axis}")


def gather(
    input: TensorLike,  # noqa: A002 - the reference API's name
    indices: TensorLike,
    axis: SupportsIndex,
) -> Tensor:
    """The elements of ``input`` at some places of a dimension, which ``indices`` then stands for.

    Args:
        input: ``[a..., n, b...]``.
        indices: ``[i...]``, whole numbers.
        axis: Which dimension ``n`` is.

    Returns:
        ``[a..., i..., b...]``.

    Raises:
        IndexError: If there is no such place.
        ValueError: If there is no such dimension, or the places are no whole numbers.
    """
    tensor, places = as_tensor(input), as_tensor(indices)
    axis = axis_of("gather", tensor, axis)
    require_places("gather", places, [tensor.shape[axis]])
    return apply("gather", tensor, places, axis=axis)[0]


def gather_nd(input: TensorLike, indices: TensorLike, batch_dims: SupportsIndex = 0) -> Tensor:  # noqa: A002
    """The elements of ``input`` at places that each name several dimensions.

    Args:
        input: ``[a..., n..., b...]``.
        indices: ``[a..., i..., k]``, whole numbers: places in the ``k`` dimensions ``n...``.
        batch_dims: How many dimensions ``a...`` both have.

    Returns:
        ``[a..., i..., b...]``.

    Raises:
        IndexError: If there is no such place.
        ValueError: If the shapes do not fit.
    """
    tensor, places = as_tensor(input), as_tensor(indices)
    batch = int(batch_dims)
    if not 0 <= batch <= min(tensor.rank, places.rank):
        raise ValueError(f"gather_nd({tensor.type}, {places.type}): no {batch} dimensions in both")
    require_places("gather_nd", places, tensor.shape[batch:])
    return apply("gather_nd", tensor, places, batch=batch)[0]


def scatter(
    input: TensorLike,  # noqa: A002 - the reference API's name
    updates: TensorLike,
    indices: TensorLike,
    axis: SupportsIndex = -1,
) -> Tensor:
    """``input`` with elements replaced at places along a dimension; of several the last is left.

    Args:
        input: ``[a..., n, b...]``.
        updates: ``[a..., m, b...]``, of the same type.
        indices: ``[a..., m, b...]``: where in ``n`` each update goes.
        axis: Which dimension ``n`` is.

    Raises:
        IndexError: If there is no such place.
        ValueError: If the shapes do not fit.
    """
    tensor, places = as_tensor(input), as_tensor(indices)
    axis = axis_of("scatter", tensor, axis)
    require_places("scatter", places, [tensor.shape[axis]])
    return apply("scatter", tensor, updates, places, axis=axis)[0]


def scatter_add(
    input: TensorLike,  # noqa: A002 - the reference API's name
    updates: TensorLike,
    indices: TensorLike,
    axis: SupportsIndex = -1,
) -> Tensor:
    """``input`` with numbers added to elements along a dimension; of one place, all of them.

    They are added in their order, so that the same operands give the same bits everywhere; 16-bit
    floats in float32, rounded once. Whole numbers wrap around. Arguments and errors are those of
    :func:`scatter`; the elements are numbers.
    """
    tensor, places = as_tensor(input), as_tensor(indices)
    axis = axis_of("scatter_add", tensor, axis)
    require_places("scatter_add", places, [tensor.shape[axis]])
    if tensor.dtype not in NARROW_FLOATS:
        return apply("scatter_add", tensor, updates, places, axis=axis)[0]
    added = as_operand("scatter_add", updates, tensor.dtype, tensor.device)
    if added.dtype is not tensor.dtype:
        types = f"scatter_add({tensor.type}, {added.type}, {places.type})"
        raise ValueError(f"{types}: updates are {tensor.dtype.value}; cast them")
    wide = (cast(operand, DType.float32) for operand in (tensor, added))
    return cast(apply("scatter_add", *wide, places, axis=axis)[0], tensor.dtype)


def scatter_nd(input: TensorLike, updates: TensorLike, indices: TensorLike) -> Tensor:  # noqa: A002
    """``input`` with elements, or blocks of them, replaced; of several the last is left.

    Args:
        input: ``[n..., b...]``.
        updates: ``[i..., b...]``, of the same type.
        indices: ``[i..., k]``: places in the ``k`` dimensions ``n...``.

    Raises:
        IndexError: If there is no such place.
        ValueError: If the shapes do not fit.
    """
    tensor, places = as_tensor(input), as_tensor(indices)
    require_places("scatter_nd", places, tensor.shape)
    return apply("scatter_nd", tensor, updates, places)[0]


def require_places(op: str, places: Tensor, sizes: Sequence[Dim]) -> None:
    """Refuse places, for an operation's message, that are known now and do not exist.

    They are ``[...]`` of one dimension, or ``[..., k]`` of several; ``sizes`` are these dimensions.
    """
    known = not is_traced(places) and places.dtype.is_integral()
    if not known or not all(size.is_static for size in sizes):
        return
    numbers = places.to_numpy()
    count = numbers.shape[-1] if len(sizes) > 1 and numbers.ndim else 1
    if count > len(sizes):  # which the operation refuses
        return
    limits = np.array([int(size) for size in sizes][:count])
    wrong = (numbers >= limits) | (numbers < -limits)
    if wrong.any():
        first = numbers[wrong][0]
        raise IndexError(f"{op}: there is no index {first} in dimensions {[*map(int, limits)]}")
