"""Operators that relate elements to the others around them: softmax and normalizations."""

from __future__ import annotations

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import known

SOFTMAX = {"Softmax": ops.softmax, "LogSoftmax": ops.logsoftmax}


@operator(*SOFTMAX, since=1)
def softmax_of_rows(call: OperatorCall) -> Tensor:
    """Softmax over all dimensions from an axis on."""
    x = call.x()
    axis = call.axis(x.rank, 1)
    rows = ops.reshape(x, [x.shape[:axis].volume(), x.shape[axis:].volume()])
    return ops.reshape(SOFTMAX[call.op_type](rows, -1), x.shape)


@operator(*SOFTMAX, since=13)
def softmax(call: OperatorCall) -> Tensor:
    """Softmax along an axis."""
    x = call.x()
    return SOFTMAX[call.op_type](x, call.axis(x.rank, -1))


@operator("Hardmax", since=13)
def hardmax(call: OperatorCall) -> Tensor:
    """1 at the first of the largest elements along an axis, 0 elsewhere."""
    x = call.x()
    return _first_largest(x, call.axis(x.rank, -1))


@operator("Hardmax", since=1)
def hardmax_of_rows(call: OperatorCall) -> Tensor:
    """The same over all dimensions from an axis on."""
    x = call.x()
    axis = call.axis(x.rank, 1)
    rows = ops.reshape(x, [x.shape[:axis].volume(), x.shape[axis:].volume()])
    return ops.reshape(_first_largest(rows, 1), x.shape)


def _first_largest(x: Tensor, axis: int) -> Tensor:
    shape = [x.shape[axis] if at == axis else 1 for at in range(x.rank)]
    numbers = ops.reshape(ops.range(0, x.shape[axis]), shape)
    return ops.cast(ops.equal(numbers, ops.argmax(x, axis)), x.dtype)


def of_channels(values: Tensor, rank: int) -> Tensor:
    """``[channels]`` as it broadcasts with ``[batch, channels, ...]``."""
    return ops.reshape(values, [values.shape[0], *[1] * max(rank - 2, 0)])


@operator("BatchNormalization")
def batch_normalization(call: OperatorCall) -> list[Tensor]:
    """Each channel less its mean over its deviation, scaled; in training, by those of the batch."""
    x, gamma, beta, mean, variance = (call.x(index) for index in range(5))
    eps = call.real("epsilon", 1e-5)
    training = call.flag("training_mode")
    require(training or not call.wants(1), "statistics are given in training only")
    if not training:
        factor = gamma / ops.sqrt(variance + eps)
        shift = beta - mean * factor
        scaled = x * of_channels(factor, x.rank) + of_channels(shift, x.rank)
        return [ops.cast(scaled, x.dtype)]
    axes = [axis for axis in range(x.rank) if axis != 1]
    own_mean, own_variance = ops.mean(x, axes), ops.variance(x, axes)
    result = (x - own_mean) / ops.sqrt(own_variance + eps)
    result = result * of_channels(gamma, x.rank) + of_channels(beta, x.rank)
    momentum = call.real("momentum", 0.9)
    flat = [ops.reshape(one, [x.shape[1]]) for one in (own_mean, own_variance)]
    pairs = zip((mean, variance), flat, strict=True)
    return [result, *(old * momentum + new * (1 - momentum) for old, new in pairs)]


@operator("InstanceNormalization")
def instance_normalization(call: OperatorCall) -> Tensor:
    """Each channel of each sample less its mean, over its deviation, scaled."""
    x = call.x()
    channels = x.shape[1]
    require(channels.is_static, "the number of channels is a named size")
    return ops.group_norm(x, call.x(1), call.x(2), int(channels), call.real("epsilon", 1e-5))


@operator("GroupNormalization", since=21)
def group_normalization(call: OperatorCall) -> Tensor:
    """Each group of channels less its mean, over its deviation; each channel scaled."""
    groups = call.number("num_groups")
    return ops.group_norm(call.x(0), call.x(1), call.x(2), groups, call.real("epsilon", 1e-5))


@operator("LayerNormalization")
def layer_normalization(call: OperatorCall) -> list[Tensor]:
    """Elements less the mean of all dimensions from an axis on, over their deviation, scaled."""
    x, scale, bias = call.x(0), call.x(1), call.maybe(2)
    axis, eps = call.axis(x.rank, -1), call.real("epsilon", 1e-5)
    width = x.shape[axis:]
    whole = scale.shape == width and (bias is None or bias.shape == width)
    if whole and not call.wants(1) and not call.wants(2):
        rows = ops.reshape(x, [*x.shape[:axis], width.volume()])
        gamma = ops.reshape(scale, [width.volume()])
        beta = None if bias is None else ops.reshape(bias, [width.volume()])
        return [ops.reshape(ops.layer_norm(rows, gamma, beta, eps), x.shape)]
    axes = list(range(axis, x.rank))
    wide = ops.cast(x, DType.float32) if x.dtype.size_in_bytes < 4 else x
    mean = ops.mean(wide, axes)
    inverse = 1.0 / ops.sqrt(ops.variance(wide, axes) + eps)
    normal = ops.cast((wide - mean) * inverse, x.dtype) * scale
    return [normal if bias is None else normal + bias, mean, inverse]


@operator("RMSNormalization")
def rms_normalization(call: OperatorCall) -> Tensor:
    """Elements over the root of their mean square, scaled."""
    x, scale = call.x(0), call.x(1)
    axis, eps = call.axis(x.rank, -1), call.real("epsilon", 1e-5)
    if axis == x.rank - 1 and scale.shape == x.shape[-1:] and x.shape[-1].is_static:
        return ops.rms_norm(x, scale, eps)
    wide = ops.cast(x, DType.float32) if x.dtype.size_in_bytes < 4 else x
    square = ops.mean(wide * wide, list(range(axis, x.rank)))
    return ops.cast(wide / ops.sqrt(square + eps), x.dtype) * scale


@operator("LpNormalization")
def lp_normalization(call: OperatorCall) -> Tensor:
    """Elements over the norm of those along an axis; 0 where that is 0."""
    x, p = call.x(), call.number("p", 2)
    axis = call.axis(x.rank, -1)
    require(p in (1, 2), f"there is no norm {p}")
    norm = ops.sum(ops.abs(x), axis) if p == 1 else ops.sqrt(ops.sum(x * x, axis))
    return ops.where(ops.equal(norm, 0.0), 0.0, x / ops.where(ops.equal(norm, 0.0), 1.0, norm))


@operator("LRN")
def local_response(call: OperatorCall) -> Tensor:
    """Elements over a power of the squares in the channels around them."""
    x, size = call.x(), call.number("size")
    require(size >= 1, "size is at least 1")
    pads = [0] * (2 * x.rank)
    pads[2], pads[3] = (size - 1) // 2, size // 2
    squares = ops.pad(x * x, pads, value=known(np.zeros((), x.dtype.to_numpy())))
    channels = x.shape[1]
    index = [slice(None)] * x.rank
    require(channels.is_static, "the number of channels is a named size")
    pieces = []
    for start in range(size):
        index[1] = slice(start, start + int(channels))
        pieces.append(ops.slice_tensor(squares, tuple(index)))
    total = pieces[0]
    for piece in pieces[1:]:
        total = total + piece
    alpha, beta = call.real("alpha", 1e-4), call.real("beta", 0.75)
    return x / ops.pow(total * (alpha / size) + call.real("bias", 1.0), beta)
