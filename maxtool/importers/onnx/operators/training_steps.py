"""Steps of optimizers (ai.onnx.preview.training): parameters after a step, and their state.

The inputs are a rate, the number of the step, and then, for each of them in turn for all
parameters: the parameter, its gradient, and its state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.refusals import require

TRAINING = "ai.onnx.preview.training"
# From a parameter, its gradient and its state to the new parameter and its new state.
Step: TypeAlias = Callable[..., Sequence[Tensor]]


def _each(call: OperatorCall, states: int, step: Step) -> list[Tensor]:
    """The results of a step for each parameter, the parameters first, then each state."""
    count, rest = divmod(len(call.operands) - 2, 2 + states)
    require(count > 0 and rest == 0, f"each parameter has a gradient and {states} states")
    rows = [
        step(*(call.x(2 + part * count + number) for part in range(2 + states)))
        for number in range(count)
    ]
    return [row[part] for part in range(1 + states) for row in rows]


def _regular(call: OperatorCall, x: Tensor, gradient: Tensor) -> Tensor:
    """The gradient with that of the norm."""
    factor = call.real("norm_coefficient", 0.0)
    return gradient + x * factor if factor else gradient


@operator("Adagrad", domain=TRAINING)
def adagrad(call: OperatorCall) -> list[Tensor]:
    """Gradients over the root of the sum of their squares (Duchi et al. 2011)."""
    time = ops.cast(ops.reshape(call.x(1), []), DType.float32)
    rate = ops.reshape(call.x(0), []) / (time * call.real("decay_factor", 0.0) + 1.0)
    eps = call.real("epsilon", 1e-6)

    def step(x: Tensor, gradient: Tensor, squares: Tensor) -> Sequence[Tensor]:
        slope = _regular(call, x, gradient)
        total = squares + slope * slope
        return x - rate * slope / (ops.sqrt(total) + eps), total

    return _each(call, 1, step)


@operator("Adam", domain=TRAINING)
def adam(call: OperatorCall) -> list[Tensor]:
    """Averages of gradients and of their squares (Kingma and Ba 2014)."""
    time = ops.cast(ops.reshape(call.x(1), []), DType.float32)
    alpha, beta = call.real("alpha", 0.9), call.real("beta", 0.999)
    eps, after = call.real("epsilon", 1e-6), call.real("norm_coefficient_post", 0.0)
    factor = ops.sqrt(1.0 - ops.pow(beta, time)) / (1.0 - ops.pow(alpha, time))
    rate = ops.reshape(call.x(0), [])
    rate = ops.where(ops.greater(time, 0.0), rate * factor, rate)

    def step(x: Tensor, gradient: Tensor, mean: Tensor, square: Tensor) -> Sequence[Tensor]:
        slope = _regular(call, x, gradient)
        mean = mean * alpha + slope * (1.0 - alpha)
        square = square * beta + slope * slope * (1.0 - beta)
        moved = x - rate * mean / (ops.sqrt(square) + eps)
        return moved * (1.0 - after) if after else moved, mean, square

    return _each(call, 2, step)


@operator("Momentum", domain=TRAINING)
def momentum(call: OperatorCall) -> list[Tensor]:
    """Gradients with what is left of those before, as they are or Nesterov's way."""
    mode = call.text("mode")
    require(mode in ("standard", "nesterov"), f"there is no mode {mode!r}")
    alpha, beta = call.real("alpha"), call.real("beta")
    rate = ops.reshape(call.x(0), [])
    first = ops.equal(ops.reshape(call.x(1), []), 0)
    share = ops.where(first, 1.0, beta)

    def step(x: Tensor, gradient: Tensor, before: Tensor) -> Sequence[Tensor]:
        slope = _regular(call, x, gradient)
        moving = before * alpha + slope * share
        direction = moving if mode == "standard" else slope + moving * alpha
        return x - rate * direction, moving

    return _each(call, 1, step)
