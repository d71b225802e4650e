"""The feed-forward parts of a layer, and their activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.nn import Linear, Module
from maxtool.nn.tensor_parallel import Role

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": ops.silu,
    "gelu": ops.gelu,
    "gelu_tanh": partial(ops.gelu, approximate="tanh"),
    "relu": ops.relu,
}


class PlainMLP(Module[[Tensor], Tensor]):
    """``down(activation(up(x)))``, by the name of an activation in ``ACTIVATIONS``."""

    def __init__(
        self, hidden: int, inner: int, activation: str, dtype: DType, has_bias: bool = False
    ) -> None:
        self.up = Linear(hidden, inner, dtype, has_bias=has_bias)
        self.down = Linear(inner, hidden, dtype, has_bias=has_bias)
        self.up.role, self.down.role = Role.OUTPUTS, Role.INPUTS
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., hidden]`` to the same shape."""
        return self.down(ACTIVATIONS[self.activation](self.up(x)))


class GatedMLP(PlainMLP):
    """``down(activation(gate(x)) * up(x))``."""

    def __init__(
        self, hidden: int, inner: int, activation: str, dtype: DType, has_bias: bool = False
    ) -> None:
        self.gate = Linear(hidden, inner, dtype, has_bias=has_bias)
        self.gate.role = Role.OUTPUTS
        super().__init__(hidden, inner, activation, dtype, has_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., hidden]`` to the same shape."""
        return self.down(ACTIVATIONS[self.activation](self.gate(x)) * self.up(x))


# What a configuration calls them.
MLPS: dict[str, type[PlainMLP]] = {"gated": GatedMLP, "plain": PlainMLP}
