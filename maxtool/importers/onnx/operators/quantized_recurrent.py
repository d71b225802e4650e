"""Recurrent layers whose matrices are quantized, and their inputs by the range of each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.initializers import ModelWeight
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import MICROSOFT, operator
from maxtool.importers.onnx.operators.quantized_products import levels_by_range
from maxtool.importers.onnx.operators.recurrent import KINDS, layers
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import known

INPUTS = 12
SCALES = {1: 8, 2: 10}
"""The input with the scales of each matrix; the next one has the zero points."""


@operator("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_lstm(call: OperatorCall) -> list[Tensor]:
    """An LSTM; what its matrices are multiplied with is quantized to uint8 by its range."""
    attributes = "activation_alpha activation_beta activations clip direction hidden_size"
    call.only(f"{attributes} input_forget", INPUTS)
    return layers(call, KINDS["LSTM"], (_matrices(call, 1), _matrices(call, 2)), _rounded)


def _rounded(x: Tensor) -> Tensor:
    """The numbers that bytes of the range of a tensor stand for."""
    levels, scale = levels_by_range(x)
    return ops.cast(levels, DType.float32) * scale


def _matrices(call: OperatorCall, at: int) -> Tensor:
    """The matrices ``[directions, terms, gates]`` as floats ``[directions, gates, terms]``."""
    x = call.x(at)
    require(x.rank == 3, f"its input {at} has three dimensions")
    count, terms, gates = x.shape
    scale, zero = (_of_features(call, at, SCALES[at] + more) for more in range(2))

    def floats(elements: NDArray[Any]) -> NDArray[Any]:
        numbers = (elements.astype(np.float32) - zero.astype(np.float32)) * scale
        return np.ascontiguousarray(numbers.transpose(0, 2, 1))

    if isinstance(x, ModelWeight):
        return x.derived("float", [count, gates, terms], DType.float32, floats)
    return known(floats(call.known(at)))


def _of_features(call: OperatorCall, matrix: int, at: int) -> NDArray[Any]:
    """Scales or zero points of each direction, or of each of its features, as they broadcast."""
    values = call.known(at)
    count, _, gates = call.x(matrix).shape
    fits = (
        values.ndim in {1, 2} and values.shape[0] == count and values.size in {count, count * gates}
    )
    require(fits, f"its input {at} has a number for each direction or feature")
    return values.reshape(int(count), 1, -1)
