"""The operations of neural networks, each a kernel of its own in the compiler.

What is multiplied is added up in float32, or in float64 where the activations are of that type.
Weights in float16 or bfloat16 are converted as they are read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maxtool.dtype import DType
from maxtool.graph.dim import DimLike
from maxtool.graph.ops.elementwise import broadcast
from maxtool.graph.ops.layout import reshape
from maxtool.graph.ops.operation_table import apply, as_operand, is_traced, rule
from maxtool.graph.ops.require import require, require_numbers
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType

_IDS = DType.int64  # what Python numbers are there

WEIGHT_DTYPES = (DType.float32, DType.float16, DType.bfloat16)
_ACTIVATIONS = (*WEIGHT_DTYPES, DType.float64)


@rule("matmul", alike=slice(0, 2))
def _infer_matmul(x: TensorType, y: TensorType) -> tuple[TensorType, ...]:
    require(x.rank >= 2 and y.rank >= 2, "both operands need at least two dimensions")
    require_numbers(x)
    require(x.shape[-1] == y.shape[-2], f"inner dimensions {x.shape[-1]} and {y.shape[-2]} differ")
    require(x.shape[-1] != 0, "the inner dimension is 0")
    batch = broadcast(x.shape[:-2], y.shape[:-2])
    return (TensorType(x.dtype, [*batch, x.shape[-2], y.shape[-1]], x.device),)


@rule("linear")
def _infer_linear(x: TensorType, weight: TensorType, *bias: TensorType) -> tuple[TensorType, ...]:
    require(x.dtype in _ACTIVATIONS, f"the input is floating-point, not {x.dtype.value}")
    for tensor_type in (weight, *bias):
        fits = tensor_type.dtype in WEIGHT_DTYPES or tensor_type.dtype is x.dtype
        require(fits, f"no kernel for a weight in {tensor_type.dtype.value} beside {x.dtype.value}")
    require(weight.rank == 2 and weight.shape.is_static, "the weight has two known dimensions")
    require(0 not in weight.shape, "the weight is empty")
    require(x.rank >= 1 and x.shape[-1] == weight.shape[1], "input and weight widths differ")
    for tensor_type in bias:
        require(tensor_type.shape == weight.shape[:1], f"the bias has shape {weight.shape[:1]}")
    return (TensorType(x.dtype, [*x.shape[:-1], weight.shape[0]], x.device),)


@rule("embedding", numbers={0: _IDS})
def _infer_embedding(ids: TensorType, weight: TensorType) -> tuple[TensorType, ...]:
    require(ids.dtype.is_integral(), f"ids are whole numbers, not {ids.dtype.value}")
    fits = weight.dtype in _ACTIVATIONS
    require(fits, f"no kernel for a weight in {weight.dtype.value}")
    require(weight.rank >= 1 and weight.shape.is_static, "the weight has known dimensions")
    require(0 not in weight.shape, "the weight is empty")
    dtype = weight.dtype if weight.dtype is DType.float64 else DType.float32
    return (TensorType(dtype, [*ids.shape, *weight.shape[1:]], ids.device),)


def matmul(x: TensorLike, y: TensorLike) -> Tensor:
    """The matrix product over the last two dimensions; those before them broadcast.

    A vector is a row on the left and a column on the right, and the result lacks that dimension.
    """
    left, right = _rank(x) == 1, _rank(y) == 1
    rows = reshape(x, [1, *_shape(x)]) if left else x
    columns = reshape(y, [*_shape(y), 1]) if right else y
    product = apply("matmul", rows, columns)[0]
    if not left and not right:
        return product
    *batch, row, column = product.shape
    return reshape(product, [*batch, *([] if left else [row]), *([] if right else [column])])


def _shape(x: TensorLike) -> Sequence[DimLike]:
    return x.shape if isinstance(x, Tensor) else np.shape(x)


def _rank(x: TensorLike) -> int:
    return len(_shape(x))


def linear(x: TensorLike, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias``, added up in float32, or in float64 for an input of that type.

    Args:
        x: ``[..., in]``, floats.
        weight: ``[out, in]``, float32, float16, bfloat16, or of the type of ``x``.
        bias: ``[out]``, likewise.

    Returns:
        ``[..., out]``, of the type of ``x``.
    """
    return apply("linear", x, weight, *([] if bias is None else [bias]))[0]


def embedding(ids: TensorLike, weight: Tensor) -> Tensor:
    """``weight[ids]``; in a graph, an id outside the vocabulary reads its nearest row.

    Args:
        ids: ``[...]``, integers of any type.
        weight: ``[vocab, ...]``, floats.

    Returns:
        The shape of ``ids``, then that of a row; float32, or float64 if the weight is.

    Raises:
        ValueError: If ids that are known now are outside the vocabulary.
    """
    tensor = as_operand("embedding", ids, _IDS, weight.device)
    _require_ids(tensor, weight)
    return apply("embedding", tensor, weight)[0]


def _require_ids(ids: Tensor, weight: Tensor) -> None:
    """Look at ids that are here; ids that an operation cannot take are its own to refuse."""
    known = not is_traced(ids) and weight.rank and weight.shape[0].is_static
    if not known or not ids.dtype.is_integral():
        return
    numbers, vocab = ids.to_numpy(), int(weight.shape[0])
    outside = numbers[(numbers < 0) | (numbers >= vocab)]
    if outside.size:
        types = f"embedding({ids.type}, {weight.type})"
        raise ValueError(f"{types}: id {outside[0]} is not one of 0 to {vocab - 1}")
