"""Convolutions of floats; the channels come last unless said otherwise."""

from __future__ import annotations

from collections.abc import Mapping

from maxtool.graph.dim import Dim
from maxtool.graph.ops.layout import permute
from maxtool.graph.ops.operation_table import apply, rule
from maxtool.graph.ops.require import require, require_floats
from maxtool.graph.ops.windows import SPATIAL, Sizes, Sliding, padding_of, sizes_of
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType

# Where the dimensions of a layout are in ours: batch, spatial ones, channels; and for filters
# rows, columns, channels, features.
_INPUTS = {"NHWC": (0, 1, 2, 3), "NCHW": (0, 2, 3, 1)}
_FILTERS = {"RSCF": (0, 1, 2, 3), "FCRS": (2, 3, 1, 0)}

TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")


@rule("conv1d", "conv2d", "conv3d")
def _infer_convolution(
    x: TensorType,
    weight: TensorType,
    bias: TensorType,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[int, ...],
    groups: int,
    exact: bool = False,  # noqa: ARG001 - part of the operation's signature
) -> tuple[TensorType, ...]:
    kernel, features = _checked(x, weight, bias, len(stride), groups)
    sizes = Sliding(kernel, stride, dilation, padding).counts(x)
    return (TensorType(x.dtype, [x.shape[0], *sizes, features], x.device),)


@rule(*TRANSPOSED)
def _infer_transposed(
    x: TensorType,
    weight: TensorType,
    bias: TensorType,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[int, ...],
    groups: int,
) -> tuple[TensorType, ...]:
    kernel, features = _checked(x, weight, bias, len(stride), groups)
    require(min(*stride, *dilation) > 0, "strides and dilations are at least 1")
    sizes = [
        _reached(dim, stride[axis], dilation[axis] * (kernel[axis] - 1) - sum(around))
        for axis, dim in enumerate(x.shape[1:-1])
        for around in [padding[2 * axis : 2 * axis + 2]]
    ]
    return (TensorType(x.dtype, [x.shape[0], *sizes, features], x.device),)


def _reached(dim: Dim, stride: int, more: int) -> Dim:
    """Return the size of what the windows of a dimension reach; ValueError if it is negative."""
    return (dim - 1) * stride + (more + 1)


def _checked(
    x: TensorType, weight: TensorType, bias: TensorType, spatial: int, groups: int
) -> tuple[tuple[int, ...], int]:
    """Return the size of the windows and the number of features, of operands that fit."""
    names = SPATIAL[spatial]
    for tensor_type in (x, weight, bias):
        require_floats(tensor_type)
        require(tensor_type.dtype is x.dtype, "operands are of one type; cast the others")
    require(x.rank == spatial + 2, f"the input is [batch, {names}, channels]")
    fits = weight.rank == spatial + 2 and weight.shape.is_static and 0 not in weight.shape
    require(fits, f"the filter is [{names}, channels, features], none of them 0 or unknown")
    *kernel, inner, features = weight.shape.static()
    require(groups > 0 and features % groups == 0, f"{features} features in {groups} groups")
    require(x.shape[-1] == inner * groups, f"the input has {inner * groups} channels")
    require(bias.shape == [features], f"the bias has shape [{features}]")
    return tuple(kernel), features


def conv2d(
    x: TensorLike,
    filter: TensorLike,  # noqa: A002 - the reference API's name
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    groups: int = 1,
    bias: TensorLike | None = None,
    input_layout: str = "NHWC",
    filter_layout: str = "RSCF",
) -> Tensor:
    """Images convolved with a filter: each output pixel is a sum of products over a window.

    Args:
        x: ``[batch, height, width, channels]``, floats.
        filter: ``[height, width, channels / groups, features]``, of the type of ``x``.
        stride: Pixels from one window to the next, (height, width) or one number for both.
        dilation: Pixels from one row or column of a window to the next, likewise.
        padding: Zeros around: (above, below, left, right), (height, width) or one number.
        groups: Parts of the channels, each convolved for itself with its part of the filters.
        bias: ``[features]``, added.
        input_layout: NHWC, or NCHW for ``[batch, channels, height, width]``, in and out.
        filter_layout: RSCF, or FCRS for ``[features, channels / groups, height, width]``.

    Returns:
        ``[batch, height, width, features]``. What follows from a symbolic height or width
        is symbolic.

    Raises:
        ValueError: If the operands do not fit, or a layout is unknown.
    """
    image = _arranged("input", x, input_layout, _INPUTS)
    weight = _arranged("filter", filter, filter_layout, _FILTERS)
    result = _convolved("conv2d", image, weight, bias, (stride, dilation, padding), groups)
    return permute(result, (0, 3, 1, 2)) if str(input_layout) == "NCHW" else result


def conv1d(
    x: TensorLike,
    filter: TensorLike,  # noqa: A002
    stride: int = 1,
    dilation: int = 1,
    padding: Sizes = 0,
    groups: int = 1,
    bias: TensorLike | None = None,
) -> Tensor:
    """Convolve ``[batch, length, channels]`` with ``[length, channels, features]``, like `conv2d`.

    ``padding`` is (before, after) or one number for both.
    """
    return _convolved("conv1d", x, filter, bias, (stride, dilation, padding), groups)


def conv3d(
    x: TensorLike,
    filter: TensorLike,  # noqa: A002
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    groups: int = 1,
    bias: TensorLike | None = None,
) -> Tensor:
    """Convolve volumes ``[batch, depth, height, width, channels]``, like `conv2d`.

    ``filter`` is ``[depth, height, width, channels / groups, features]``, and ``padding`` has two
    numbers for each dimension in turn, or one.
    """
    return _convolved("conv3d", x, filter, bias, (stride, dilation, padding), groups)


def exact_convolution(
    x: Tensor,
    filter: Tensor,  # noqa: A002
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    groups: int = 1,
    bias: Tensor | None = None,
) -> Tensor:
    """Convolve like `conv1d`, `conv2d` or `conv3d`, by the products themselves.

    No transform makes fewer of them, which would round: sums of whole numbers are exact as far as
    the type has them.
    """
    window = (stride, dilation, padding)
    return _convolved(f"conv{x.rank - 2}d", x, filter, bias, window, groups, exact=True)


def conv_transpose1d(
    x: TensorLike,
    filter: TensorLike,  # noqa: A002
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    groups: int = 1,
    bias: TensorLike | None = None,
    output_padding: Sizes = 0,
) -> Tensor:
    """Convolve ``[batch, length, channels]`` transposed, like `conv_transpose2d`."""
    window = (stride, dilation, padding)
    return _transposed("conv_transpose1d", x, filter, bias, window, groups, output_padding)


def conv_transpose2d(
    x: TensorLike,
    filter: TensorLike,  # noqa: A002
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    groups: int = 1,
    bias: TensorLike | None = None,
    output_padding: Sizes = 0,
) -> Tensor:
    """Convolve images transposed: each input pixel adds its products to a window of the output.

    Args:
        x: ``[batch, height, width, channels]``, floats.
        filter: ``[height, width, channels / groups, features]``, of the type of ``x``.
        stride: Output pixels from one window to the next, (height, width) or one number for both.
        dilation: Output pixels from one row or column of a window to the next, likewise.
        padding: What is cut off the output: (above, below, left, right), (height, width) or one
            number. Negative numbers add pixels that have the bias alone.
        groups: Parts of the channels, and of the features in the same order.
        bias: ``[features]``, added.
        output_padding: What less is cut off below and to the right.

    Returns:
        ``[batch, height, width, features]``; a height is ``(input - 1) * stride + dilation *
        (kernel - 1) + 1``, and what is cut off less. It may follow from a symbolic one.

    Raises:
        ValueError: If the operands do not fit.
    """
    window = (stride, dilation, padding)
    return _transposed("conv_transpose2d", x, filter, bias, window, groups, output_padding)


def conv_transpose3d(
    x: TensorLike,
    filter: TensorLike,  # noqa: A002
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    groups: int = 1,
    bias: TensorLike | None = None,
    output_padding: Sizes = 0,
) -> Tensor:
    """Convolve ``[batch, depth, height, width, channels]`` transposed, like `conv_transpose2d`."""
    window = (stride, dilation, padding)
    return _transposed("conv_transpose3d", x, filter, bias, window, groups, output_padding)


def _transposed(
    name: str,
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None,
    window: tuple[Sizes, Sizes, Sizes],
    groups: int,
    output_padding: Sizes,
) -> Tensor:
    stride, dilation, padding = window
    spatial = int(name[-2])
    more = sizes_of(output_padding, spatial)
    cut = tuple(
        size - more[number // 2] * (number % 2)
        for number, size in enumerate(padding_of(padding, spatial))
    )
    return _convolved(name, x, weight, bias, (stride, dilation, cut), groups)


def _convolved(
    name: str,
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None,
    window: tuple[Sizes, Sizes, Sizes],
    groups: int,
    **more: bool,
) -> Tensor:
    """Apply the operation of a name, which ends with the number of spatial dimensions."""
    spatial = int(name[-2])
    image, filters = _tensor(x), _tensor(weight)
    stride, dilation, padding = window
    return apply(
        name,
        image,
        filters,
        _bias(bias, filters),
        stride=sizes_of(stride, spatial),
        dilation=sizes_of(dilation, spatial),
        padding=padding_of(padding, spatial),
        groups=int(groups),
        **more,
    )[0]


def _tensor(operand: TensorLike) -> Tensor:
    return operand if isinstance(operand, Tensor) else Tensor(operand)


def _arranged(
    what: str, tensor_like: TensorLike, layout: str, known: Mapping[str, tuple[int, ...]]
) -> Tensor:
    """Permute four dimensions from a layout into ours; other ranks are refused later."""
    tensor = _tensor(tensor_like)
    order = known.get(str(layout))
    if order is None:
        raise ValueError(f"conv2d: {what}_layout is {' or '.join(known)}, not {layout}")
    return permute(tensor, order) if tensor.rank == 4 and order != (0, 1, 2, 3) else tensor


def _bias(bias: TensorLike | None, weight: Tensor) -> TensorLike:
    """The bias, zeros for none."""
    if bias is not None:
        return bias
    known = weight.rank > 0 and weight.shape[-1].is_static
    return Tensor.zeros([weight.shape[-1] if known else 0], weight.dtype, weight.device)
