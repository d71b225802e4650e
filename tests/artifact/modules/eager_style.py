"""A module in the eager style, compiled by tests as a user's file."""

from __future__ import annotations

from maxtool.experimental.nn import Linear, Module, module_dataclass
from maxtool.experimental.tensor import Tensor
from maxtool.graph import TensorType, ops


@module_dataclass
class Gate(Module[[Tensor], Tensor]):
    """Two branches, one of which gates the other; the second is tied to the first."""

    value: Linear
    gate: Linear

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[n, 8]`` to ``[n, 8]``."""
        return self.value(x) * ops.sigmoid(self.gate(x))

    def input_types(self) -> list[TensorType]:
        """A batch of rows."""
        return self.value.input_types()


def gate() -> Gate:
    """A gate with both branches of its own."""
    return Gate(Linear(8, 8), Linear(8, 8, bias=False))


def tied() -> Gate:
    """A gate whose branches share their matrix."""
    value, branch = Linear(8, 8), Linear(8, 8, bias=False)
    branch.weight = value.weight
    return Gate(value, branch)
