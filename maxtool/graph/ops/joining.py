"""Operations that join tensors, cut them in pieces, repeat and pad them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from maxtool.graph.dim import Dim, DimLike, Shape
from maxtool.graph.ops.axes import axis_of, differ_only
from maxtool.graph.ops.gathering import gather
from maxtool.graph.ops.layout import broadcast_to, flatten, reshape, unsqueeze
from maxtool.graph.ops.operation_table import apply, as_tensor, is_traced, rule
from maxtool.graph.ops.require import require
from maxtool.graph.ops.slicing import cut_along
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType


@rule("concat", alike=slice(None))
def _infer_concat(*kinds: TensorType, axis: int) -> tuple[TensorType, ...]:
    first = kinds[0]
    total = Dim(0)
    for tensor_type in kinds:
        same = differ_only(axis, tensor_type.shape, first.shape)
        require(same, f"only dimension {axis} may differ")
        total = total + tensor_type.shape[axis]
    sizes = [*first.shape[:axis], total, *first.shape[axis + 1 :]]
    return (TensorType(first.dtype, sizes, first.device),)


@rule("pad")
def _infer_pad(
    tensor_type: TensorType, value: TensorType, before: tuple[int, ...], after: tuple[int, ...]
) -> tuple[TensorType, ...]:
    pairs = len(before) == len(after) == tensor_type.rank
    require(pairs, f"needs two numbers for each of {tensor_type.rank} dimensions")
    require(min((*before, *after), default=0) >= 0, "padding is not negative")
    require(value.rank == 0, "what is padded with is one number")
    require(value.dtype is tensor_type.dtype, f"cannot pad with {value.dtype.value}")
    sizes = [
        dim + (low + high) for dim, low, high in zip(tensor_type.shape, before, after, strict=True)
    ]
    return (TensorType(tensor_type.dtype, sizes, tensor_type.device),)


def concat(original_vals: Iterable[TensorLike], axis: SupportsIndex = 0) -> Tensor:
    """Tensors one after the other along a dimension; the others are equal.

    Raises:
        ValueError: If there is none, they have no such dimension, or others differ.
    """
    tensors = [as_tensor(original_val) for original_val in original_vals]
    if not tensors:
        raise ValueError("concat: there is nothing to join")
    dim_index = axis_of("concat", tensors[0], axis)
    return tensors[0] if len(tensors) == 1 else apply("concat", *tensors, axis=dim_index)[0]


def stack(values: Iterable[TensorLike], axis: SupportsIndex = 0) -> Tensor:
    """Tensors of one shape side by side along a new dimension, ``axis`` of the result.

    Raises:
        ValueError: If there is none, or their shapes differ.
    """
    return concat([unsqueeze(value, axis) for value in values], axis)


def split(
    x: TensorLike, split_sizes: Sequence[DimLike] | SupportsIndex, axis: SupportsIndex = 0
) -> list[Tensor]:
    """``x`` cut along a dimension into pieces of these sizes.

    Args:
        x: Any tensor.
        split_sizes: The size of each piece, together the dimension's; or one number, the size of
            all but the last, which is what is left of a dimension whose size is known.
        axis: The dimension.

    Raises:
        ValueError: If the sizes are not those of the dimension.
    """
    tensor = as_tensor(x)
    dim_index = axis_of("split", tensor, axis)
    whole = tensor.shape[dim_index]
    sizes = _pieces(tensor, whole, split_sizes)
    starts = [sum(sizes[:number], start=Dim(0)) for number in range(len(sizes) + 1)]
    if starts[-1] != whole:
        raise ValueError(f"split({tensor.type}): sizes {Shape(sizes)} together are not {whole}")
    places = zip(starts, sizes, strict=False)
    return [cut_along(tensor, dim_index, start, size) for start, size in places]


def _pieces(x: Tensor, whole: Dim, sizes: Sequence[DimLike] | SupportsIndex) -> list[Dim]:
    if isinstance(sizes, Sequence):
        return [Dim(size) for size in sizes]
    each = index(sizes)
    if each < 1 or not whole.is_static:
        raise ValueError(f"split({x.type}): cannot cut {whole} into pieces of {each}")
    return [Dim(min(each, int(whole) - start)) for start in range(0, int(whole), each)]


def chunk(x: TensorLike, chunks: SupportsIndex, axis: SupportsIndex = 0) -> list[Tensor]:
    """``x`` cut along a dimension into so many equal pieces.

    Raises:
        ValueError: If the dimension is not known to be a multiple of their number.
    """
    tensor = as_tensor(x)
    dim_index, count = axis_of("chunk", tensor, axis), index(chunks)
    size = tensor.shape[dim_index] // count if count > 0 else Dim(0)
    if count < 1 or size * count != tensor.shape[dim_index]:
        raise ValueError(
            f"chunk({tensor.type}): no {count} equal pieces of {tensor.shape[dim_index]}"
        )
    return split(tensor, [size] * count, dim_index)


def tile(x: TensorLike, repeats: Sequence[DimLike]) -> Tensor:
    """``x`` repeated as a whole along each dimension, so many times.

    Raises:
        ValueError: If there is not one number for each dimension.
    """
    tensor = as_tensor(x)
    if len(repeats) != tensor.rank:
        raise ValueError(f"tile({tensor.type}): needs {tensor.rank} numbers, not {len(repeats)}")
    pairs = list(zip(map(Dim, repeats), tensor.shape, strict=True))
    apart = reshape(tensor, [one for _, size in pairs for one in (Dim(1), size)])
    repeated = broadcast_to(apart, [one for pair in pairs for one in pair])
    return reshape(repeated, [times * size for times, size in pairs])


def repeat_interleave(
    x: TensorLike,
    repeats: SupportsIndex | TensorLike,
    axis: SupportsIndex | None = None,
    out_dim: DimLike | None = None,
) -> Tensor:
    """Each element along a dimension repeated; with ``axis`` None, each of all elements.

    Args:
        x: Any tensor.
        repeats: How often: one number, or one for each element, as data.
        axis: The dimension.
        out_dim: For several numbers, the size that they add up to, if it is to be checked.

    Raises:
        ValueError: If the numbers are negative, are not as many as the elements, or are known only
            when the graph runs.
    """
    tensor = flatten(x) if axis is None else as_tensor(x)
    dim_index = axis_of("repeat_interleave", tensor, 0 if axis is None else axis)
    if isinstance(repeats, SupportsIndex) and not isinstance(repeats, Tensor | np.ndarray):
        return _repeated(tensor, index(repeats), dim_index)
    places = _repetitions(tensor, as_tensor(repeats), dim_index)
    if out_dim is not None and Dim(out_dim) != len(places):
        raise ValueError(f"repeat_interleave({tensor.type}): {len(places)} elements, not {out_dim}")
    return gather(tensor, Tensor(places, device=tensor.device), dim_index)


def _repeated(x: Tensor, times: int, axis: int) -> Tensor:
    if times < 0:
        raise ValueError(f"repeat_interleave({x.type}): {times} times")
    sizes = [*x.shape[: axis + 1], Dim(times), *x.shape[axis + 1 :]]
    joined = [*x.shape[:axis], x.shape[axis] * times, *x.shape[axis + 1 :]]
    return reshape(broadcast_to(unsqueeze(x, axis + 1), sizes), joined)


def _repetitions(x: Tensor, repeats: Tensor, axis: int) -> npt.NDArray[np.int64]:
    if is_traced(repeats) or not repeats.dtype.is_integral():
        raise ValueError(f"repeat_interleave({x.type}): repeats are whole numbers known now")
    numbers = repeats.to_numpy().reshape(-1)
    if x.shape[axis] != len(numbers) or np.any(numbers < 0):
        raise ValueError(f"repeat_interleave({x.type}): needs {x.shape[axis]} numbers from 0 on")
    return np.repeat(np.arange(len(numbers), dtype=np.int64), numbers.astype(np.int64))


def pad(
    input: TensorLike,  # noqa: A002 - the reference API's name
    paddings: Iterable[SupportsIndex],
    mode: str = "constant",
    value: TensorLike = 0,
) -> Tensor:
    """``input`` with more elements around it.

    Args:
        input: Any tensor.
        paddings: Two numbers for each dimension in order: how many elements before, how many after.
        mode: ``constant``; there are no other modes.
        value: What the elements are.

    Raises:
        ValueError: If the numbers are not as many or negative, or the value is not of the type.
    """
    tensor = as_tensor(input)
    if mode != "constant":
        raise ValueError(f"pad({tensor.type}): there is the mode constant only, not {mode!r}")
    numbers = tuple(index(padding) for padding in paddings)
    return apply("pad", tensor, value, before=numbers[0::2], after=numbers[1::2])[0]
