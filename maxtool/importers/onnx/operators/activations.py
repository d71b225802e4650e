"""Activations of com.microsoft, and those that its fused operators name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import MICROSOFT, operator
from maxtool.importers.onnx.refusals import require

# From the value, and the attributes activation_alpha, _beta and _gamma as far as they are given.
NAMED: Mapping[str, Callable[..., Tensor]] = {
    "": lambda x: x,
    "Clip": lambda x, low, high: ops.clamp(x, low, high),
    "Elu": lambda x, alpha=1.0: ops.where(ops.less(x, 0.0), (ops.exp(x) - 1.0) * alpha, x),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: ops.clamp(x * alpha + beta, 0.0, 1.0),
    "LeakyRelu": lambda x, alpha=0.01: ops.where(ops.less(x, 0.0), x * alpha, x),
    "Relu": ops.relu,
    "Sigmoid": ops.sigmoid,
    "Softplus": ops.softplus,
    "Softsign": lambda x: x / (ops.abs(x) + 1.0),
    "Tanh": ops.tanh,
}
"""Activations by the names in the attribute ``activation``."""

NUMBERS = ("activation_alpha", "activation_beta", "activation_gamma")
NAMES = " ".join(("activation", "activation_params", *NUMBERS))
"""The attributes that say an activation."""


def activated(call: OperatorCall, x: Tensor) -> Tensor:
    """A result as the attribute ``activation`` says."""
    name = call.text("activation", "")
    require(name in NAMED, f"the activation {name!r} is not supported; {', '.join(NAMED)[2:]} are")
    given = call.attributes.get("activation_params")
    numbers = given or [call.real(one) for one in NUMBERS if one in call.attributes]
    return NAMED[name](x, *map(float, numbers))


def _with_bias(call: OperatorCall) -> Tensor:
    bias = call.maybe(1)
    return call.x() if bias is None else call.x() + bias


@operator("Gelu", "BiasGelu", domain=MICROSOFT)
def exact_gelu(call: OperatorCall) -> Tensor:
    """``x`` times the normal distribution function, after a bias if there is one."""
    call.only("", 2)
    return ops.gelu(_with_bias(call))


@operator("FastGelu", domain=MICROSOFT)
def fast_gelu(call: OperatorCall) -> Tensor:
    """The same by a hyperbolic tangent."""
    call.only("", 2)
    return ops.gelu(_with_bias(call), "tanh")


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(call: OperatorCall) -> Tensor:
    """``x * sigmoid(alpha * x)``."""
    call.only("alpha", 1)
    x, alpha = call.x(), call.real("alpha", 1.702)
    return ops.silu(x) if alpha == 1.0 else x * ops.sigmoid(x * alpha)
