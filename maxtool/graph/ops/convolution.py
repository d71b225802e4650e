"""Convolutions and pooling of floats; the channels come last unless said otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from maxtool.graph.dim import Dim
from maxtool.graph.ops.layout import permute
from maxtool.graph.ops.operation_table import apply, rule
from maxtool.graph.ops.require import require, require_floats
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType

Sizes: TypeAlias = "int | Sequence[int]"

# Where the dimensions of a layout are in ours: batch, spatial ones, channels; and for filters
# rows, columns, channels, features.
_INPUTS = {"NHWC": (0, 1, 2, 3), "NCHW": (0, 2, 3, 1)}
_FILTERS = {"RSCF": (0, 1, 2, 3), "FCRS": (2, 3, 1, 0)}


def _require_one_float_type(*kinds: TensorType) -> None:
    for tensor_type in kinds:
        require_floats(tensor_type)
        require(tensor_type.dtype is kinds[0].dtype, "operands are of one type; cast the others")


@rule("conv1d", "conv2d")
def _infer_convolution(
    x: TensorType,
    weight: TensorType,
    bias: TensorType,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[int, ...],
    groups: int,
) -> tuple[TensorType, ...]:
    spatial = len(stride)
    names = ", ".join(("height", "width")[2 - spatial :])
    _require_one_float_type(x, weight, bias)
    require(x.rank == spatial + 2, f"the input is [batch, {names}, channels]")
    fits = weight.rank == spatial + 2 and weight.shape.is_static and 0 not in weight.shape
    require(fits, f"the filter is [{names}, channels, features], none of them 0 or unknown")
    *kernel, inner, features = weight.shape.static()
    require(groups > 0 and features % groups == 0, f"{features} features in {groups} groups")
    require(x.shape[-1] == inner * groups, f"the input has {inner * groups} channels")
    require(bias.shape == [features], f"the bias has shape [{features}]")
    sizes = _windows(x, tuple(kernel), stride, dilation, padding, ceil_mode=False)
    return (TensorType(x.dtype, [x.shape[0], *sizes, features], x.device),)


@rule("max_pool2d", "avg_pool2d")
def _infer_pool(
    x: TensorType,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[int, ...],
    ceil_mode: bool,
    count_boundary: bool,  # noqa: ARG001 - part of the operation's signature
) -> tuple[TensorType, ...]:
    _require_one_float_type(x)
    require(x.rank == 4 and x.shape[3].is_static, "the input is [batch, height, width, channels]")
    require(min(kernel) > 0, "a window has rows and columns")
    covered = all(2 * max(padding[2 * i : 2 * i + 2]) <= size for i, size in enumerate(kernel))
    require(covered, "padding is at most half a window")
    sizes = _windows(x, kernel, stride, dilation, padding, ceil_mode)
    return (TensorType(x.dtype, [x.shape[0], *sizes, x.shape[3]], x.device),)


def _windows(
    x: TensorType,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[int, ...],
    ceil_mode: bool,
) -> list[Dim]:
    """Return the number of windows that fit along each spatial dimension."""
    require(min(*stride, *dilation) > 0, "strides and dilations are at least 1")
    require(min(padding) >= 0, "padding is not negative")
    sizes = []
    for axis, size in enumerate(kernel):
        before, after = padding[2 * axis : 2 * axis + 2]
        reach, step = dilation[axis] * (size - 1), stride[axis]
        sizes.append(_fitting(x.shape[axis + 1], before, after - reach, step, ceil_mode))
    return sizes


def _fitting(dim: Dim, before: int, after: int, stride: int, ceil_mode: bool) -> Dim:
    """Return the number of windows in a dimension that ends with ``after`` starts of windows."""
    if not dim.is_static:
        require(
            stride == 1 and before + after == 0,
            f"the result's size of the symbolic dimension {dim} is not its own;"
            " keep it by padding, or make it static",
        )
        return dim
    starts = int(dim) + before + after - 1
    require(starts >= 0, f"a dimension of {dim} is smaller than a window")
    count = starts // stride + 1
    if ceil_mode and starts % stride and count * stride < int(dim) + before:
        count += 1
    return Dim(count)


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
        ``[batch, height, width, features]``. A symbolic height or width must stay as it is.

    Raises:
        ValueError: If the operands do not fit, or a layout is unknown.
    """
    image = _arranged("input", x, input_layout, _INPUTS)
    weight = _arranged("filter", filter, filter_layout, _FILTERS)
    options = {
        "stride": _sizes(stride, 2),
        "dilation": _sizes(dilation, 2),
        "padding": _padding(padding, 2),
        "groups": int(groups),
    }
    result = apply("conv2d", image, weight, _bias(bias, weight), **options)[0]
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
    signal, weight = (
        operand if isinstance(operand, Tensor) else Tensor(operand) for operand in (x, filter)
    )
    options = {
        "stride": _sizes(stride, 1),
        "dilation": _sizes(dilation, 1),
        "padding": _sizes(padding, 2),
        "groups": int(groups),
    }
    return apply("conv1d", signal, weight, _bias(bias, weight), **options)[0]


def max_pool2d(
    input: TensorLike,  # noqa: A002 - the reference API's name
    kernel_size: Sizes,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    ceil_mode: bool = False,
) -> Tensor:
    """The maximum of each window of ``[batch, height, width, channels]``; padding never wins."""
    return _pool("max_pool2d", input, (kernel_size, stride, dilation, padding), ceil_mode, False)


def avg_pool2d(
    input: TensorLike,  # noqa: A002
    kernel_size: Sizes,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_boundary: bool = True,
) -> Tensor:
    """The mean of each window of ``[batch, height, width, channels]``.

    Args:
        input: Floats.
        kernel_size: Of the window, (height, width) or one number for both, as all below.
        stride: Pixels from one window to the next.
        dilation: Pixels from one row or column of a window to the next.
        padding: Zeros on either side.
        ceil_mode: Whether a last window that reaches beyond the padding is computed too.
        count_boundary: Whether the padding counts in the divisor.
    """
    sizes = (kernel_size, stride, dilation, padding)
    return _pool("avg_pool2d", input, sizes, ceil_mode, count_boundary)


def _pool(
    name: str, x: TensorLike, sizes: tuple[Sizes, ...], ceil_mode: bool, counts: bool
) -> Tensor:
    kernel, stride, dilation = (_sizes(setting, 2) for setting in sizes[:3])
    window = {"kernel": kernel, "stride": stride, "dilation": dilation}
    options = {"ceil_mode": bool(ceil_mode), "count_boundary": bool(counts)}
    return apply(name, x, **window, padding=_padding(sizes[3], 2), **options)[0]


def _sizes(given: Sizes, count: int) -> tuple[int, ...]:
    sizes = (given,) * count if isinstance(given, int) else tuple(int(size) for size in given)
    require(len(sizes) == count, f"one number or {count}, not {list(sizes)}")
    return sizes


def _padding(sizes: Sizes, count: int) -> tuple[int, ...]:
    """(before, after) of each dimension."""
    if not isinstance(sizes, int) and len(sizes) == 2 * count:
        return _sizes(sizes, 2 * count)
    return tuple(one for size in _sizes(sizes, count) for one in (size, size))


def _arranged(
    what: str, tensor_like: TensorLike, layout: str, known: Mapping[str, tuple[int, ...]]
) -> Tensor:
    """Permute four dimensions from a layout into ours; other ranks are refused later."""
    tensor = tensor_like if isinstance(tensor_like, Tensor) else Tensor(tensor_like)
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
