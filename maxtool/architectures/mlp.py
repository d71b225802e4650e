"""The feed-forward parts of a layer."""

from __future__ import annotations

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.architectures.sparse_gates import above
from maxtool.architectures.xielu import Numbers, xielu
from maxtool.dtype import DType
from maxtool.graph import Tensor
from maxtool.nn import Linear, Module, RMSNorm
from maxtool.nn.tensor_parallel import Role


class PlainMLP(Module[..., Tensor]):
    """``down(norm(activation(up(x))))``, by the name of an activation in ``ACTIVATIONS``.

    It may be xIELU too, whose numbers are given beside ``x``. There is an RMS norm inside if its
    ``inner_eps`` is given. ``down`` has a bias where all matrices have one, unless ``down_bias``
    says otherwise.
    """

    def __init__(
        self,
        hidden: int,
        inner: int,
        activation: str,
        dtype: DType,
        has_bias: bool = False,
        inner_eps: float | None = None,
        down_bias: bool | None = None,
    ) -> None:
        last = has_bias if down_bias is None else down_bias
        self.up = Linear(hidden, inner, dtype, has_bias=has_bias)
        self.norm = None if inner_eps is None else RMSNorm(inner, inner_eps)
        self.down = Linear(inner, hidden, dtype, has_bias=last)
        self.up.role, self.down.role = Role.OUTPUTS, Role.INPUTS
        self.activation = activation

    def forward(self, x: Tensor, numbers: Numbers | None = None) -> Tensor:
        """Map ``[..., hidden]`` to the same shape."""
        inner = self._inner(x, numbers)
        return self.down(inner if self.norm is None else self.norm(inner))

    def _inner(self, x: Tensor, numbers: Numbers | None) -> Tensor:
        return self._activated(self.up(x), numbers)

    def _activated(self, x: Tensor, numbers: Numbers | None) -> Tensor:
        return ACTIVATIONS[self.activation](x) if numbers is None else xielu(x, numbers)


class GatedMLP(PlainMLP):
    """``down(norm(activation(gate_scale * gate(x)) * up(x)))``.

    Of gates the ``sparsity`` of all that are least are zero before they are activated.
    """

    def __init__(
        self,
        hidden: int,
        inner: int,
        activation: str,
        dtype: DType,
        has_bias: bool = False,
        inner_eps: float | None = None,
        gate_scale: float = 1.0,
        sparsity: float = 0.0,
        down_bias: bool | None = None,
    ) -> None:
        self.gate = Linear(hidden, inner, dtype, has_bias=has_bias)
        self.gate.role = Role.OUTPUTS
        self.gate_scale, self.sparsity = gate_scale, sparsity
        super().__init__(hidden, inner, activation, dtype, has_bias, inner_eps, down_bias)

    def _inner(self, x: Tensor, numbers: Numbers | None) -> Tensor:
        gate = above(scaled(self.gate(x), self.gate_scale), self.sparsity)
        return self._activated(gate, numbers) * self.up(x)


def scaled(x: Tensor, factor: float) -> Tensor:
    """``x`` times a number, itself for 1."""
    return x if factor == 1 else x * factor


# What a configuration calls them.
MLPS: dict[str, type[PlainMLP]] = {"gated": GatedMLP, "plain": PlainMLP}
