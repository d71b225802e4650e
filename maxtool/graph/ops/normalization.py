"""Softmax and the normalisations, of floats; float16 and bfloat16 are computed in float32."""

from __future__ import annotations

from operator import index
from typing import SupportsIndex

from maxtool.graph.ops.axes import axes_of
from maxtool.graph.ops.operation_table import apply, rule
from maxtool.graph.ops.require import require, require_floats
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType


@rule("softmax", "logsoftmax")
def _infer_softmax(x: TensorType, axes: tuple[int, ...]) -> tuple[TensorType, ...]:
    require_floats(x)
    (axis,) = axes
    require(0 <= axis < x.rank, f"there is no axis {axis} in {x.rank} dimensions")
    return (TensorType(x.dtype, x.shape, x.device),)


@rule("l2_norm")
def _infer_l2_norm(x: TensorType, eps: float) -> tuple[TensorType, ...]:
    require_floats(x)
    require(x.rank >= 1, "the input has at least one dimension")
    require(eps >= 0, "eps is not negative")
    return (TensorType(x.dtype, x.shape, x.device),)


@rule("layer_norm")
def _infer_layer_norm(
    x: TensorType, gamma: TensorType, beta: TensorType, eps: float
) -> tuple[TensorType, ...]:
    require(x.rank >= 1, "the input has at least one dimension")
    _require_affine(x, gamma, beta, eps, axis=-1)
    return (TensorType(x.dtype, x.shape, x.device),)


@rule("group_norm")
def _infer_group_norm(
    x: TensorType, gamma: TensorType, beta: TensorType, num_groups: int, eps: float
) -> tuple[TensorType, ...]:
    require(x.rank >= 2 and x.shape[1].is_static, "the input is [batch, channels, ...]")
    require(num_groups > 0, f"{num_groups} groups")
    channels = int(x.shape[1])
    require(channels % num_groups == 0, f"{channels} channels do not make {num_groups} groups")
    _require_affine(x, gamma, beta, eps, axis=1)
    return (TensorType(x.dtype, x.shape, x.device),)


def _require_affine(
    x: TensorType, gamma: TensorType, beta: TensorType, eps: float, axis: int
) -> None:
    require_floats(x, gamma, beta)
    width = x.shape[axis]
    require(gamma.shape == [width], f"gamma has shape [{width}]")
    require(beta.shape == [width], f"beta has shape [{width}]")
    require(gamma.dtype is beta.dtype, "gamma and beta are of one type")
    require(eps >= 0, "eps is not negative")


@rule("rms_norm")
def _infer_rms_norm(
    x: TensorType,
    weight: TensorType,
    eps: float,
    weight_offset: float,  # noqa: ARG001 - part of the operation's signature
    multiply_before_cast: bool,  # noqa: ARG001
) -> tuple[TensorType, ...]:
    require_floats(x, weight)
    require(x.rank >= 1 and x.shape[-1].is_static, "the width of the input is known")
    require(weight.shape == x.shape[-1:], f"the weight has shape {x.shape[-1:]}")
    require(eps >= 0, "eps is not negative")
    return (TensorType(x.dtype, x.shape, x.device),)


def softmax(value: TensorLike, axis: SupportsIndex = -1) -> Tensor:
    """``exp(x) / sum(exp(x))`` along ``axis``, computed so that nothing overflows."""
    return _softmax("softmax", value, axis)


def logsoftmax(value: TensorLike, axis: SupportsIndex = -1) -> Tensor:
    """The logarithm of :func:`softmax`."""
    return _softmax("logsoftmax", value, axis)


def _softmax(name: str, value: TensorLike, axis: SupportsIndex) -> Tensor:
    tensor = value if isinstance(value, Tensor) else Tensor(value)
    return apply(name, tensor, axes=axes_of(tensor, index(axis)))[0]


def l2_norm(value: TensorLike, epsilon: float = 1e-6) -> Tensor:
    """``x / sqrt(sum(x * x) + epsilon)`` over the last dimension."""
    return apply("l2_norm", value, eps=float(epsilon))[0]


def layer_norm(
    input: TensorLike,  # noqa: A002 - the reference API's name
    gamma: TensorLike | None,
    beta: TensorLike | None,
    epsilon: float,
) -> Tensor:
    """``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` over the last dimension.

    Args:
        input: ``[..., width]``, floats.
        gamma: ``[width]`` of any float type; ones when None.
        beta: ``[width]``, of the type of ``gamma``; zeros when None.
        epsilon: Added to the variance.
    """
    x = input if isinstance(input, Tensor) else Tensor(input)
    return apply("layer_norm", x, *_affine(x, gamma, beta, axis=-1), eps=float(epsilon))[0]


def group_norm(
    input: TensorLike,  # noqa: A002 - the reference API's name
    gamma: TensorLike | None,
    beta: TensorLike | None,
    num_groups: int,
    epsilon: float,
) -> Tensor:
    """Each group of channels less its mean, over its deviation; then each channel scaled.

    Args:
        input: ``[batch, channels, ...]``, floats.
        gamma: ``[channels]``, each channel's factor; ones when None.
        beta: ``[channels]``, what is added to it; zeros when None.
        num_groups: How many groups the channels make.
        epsilon: Added to the variance of a group.
    """
    x = input if isinstance(input, Tensor) else Tensor(input)
    options = {"num_groups": int(num_groups), "eps": float(epsilon)}
    return apply("group_norm", x, *_affine(x, gamma, beta, axis=1), **options)[0]


def _affine(
    x: Tensor, gamma: TensorLike | None, beta: TensorLike | None, axis: int
) -> tuple[TensorLike, TensorLike]:
    """Return gamma and beta, ones and zeros where absent; wrong widths are refused later."""
    beside = next((parameter for parameter in (gamma, beta) if isinstance(parameter, Tensor)), x)
    known = -x.rank <= axis < x.rank and x.shape[axis].is_static

    def filled(value: float) -> Tensor:
        width = x.shape[axis] if known else 0
        return Tensor.full([width], value, dtype=beside.dtype, device=x.device)

    return filled(1) if gamma is None else gamma, filled(0) if beta is None else beta


def rms_norm(
    input: TensorLike,  # noqa: A002 - the reference API's name
    weight: TensorLike,
    epsilon: float,
    weight_offset: float = 0.0,
    multiply_before_cast: bool = False,
) -> Tensor:
    """``x / sqrt(mean(x * x) + epsilon) * (weight + weight_offset)`` over the last dimension.

    By Zhang & Sennrich 2019.

    Args:
        input: ``[..., width]``, floats.
        weight: ``[width]`` of any float type.
        epsilon: Added to the mean square.
        weight_offset: Added to the weight: 1 for Gemma.
        multiply_before_cast: For float16 and bfloat16: whether the product is computed in float32
            (Gemma), or of two numbers rounded to the type of ``input`` (Llama).
    """
    options = {
        "weight_offset": float(weight_offset),
        "multiply_before_cast": bool(multiply_before_cast),
    }
    return apply("rms_norm", input, weight, eps=float(epsilon), **options)[0]
