"""Modules in the graph style, compiled by tests as a user's file."""

from __future__ import annotations

from beside import activation

from maxtool.dtype import DType
from maxtool.graph import Tensor, Weight, ops
from maxtool.nn import Linear, Module
from maxtool.quantization import QuantizationEncoding

print("printed by the file")  # noqa: T201 - what users do


class MLP(Module):
    """Two layers, and a second entry."""

    def __init__(self) -> None:
        self.up = Linear(16, 24, has_bias=True)
        self.down = Linear(24, 3, has_bias=True)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, 16]`` to ``[batch, 3]``."""
        return self.down(activation(self.up(x)))

    def compare(self, x: Tensor, other: Tensor, scale: Tensor) -> dict[str, Tensor]:
        """Distances of ``x [batch, 16]`` from ``other [rows, 16]``, and the nearest rows."""
        left, right = self.up(x), self.up(other)
        near = left @ ops.transpose(right, 0, 1) * scale
        return {"near": near, "best": ops.argmax(near)}

    def third(self, x: Tensor) -> Tensor:
        """The third row and those behind it, so that there must be three."""
        output: Tensor = self(x)
        return output[2:]


class Tied(Module):
    """A table that is its own head: one weight under two names."""

    def __init__(self) -> None:
        self.table = Weight("weight", DType.float32, (12, 8))
        self.head = Linear(8, 12)
        self.head.set_shared_weight("weight", self.table)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[n, 8]`` to ``[n, 8]``."""
        return self.head(x) @ self.table


class Quantized(Module):
    """A weight that stays encoded until it is stored."""

    def __init__(self) -> None:
        self.inner = Linear(64, 6, quantization_encoding=QuantizationEncoding.Q8_0)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[n, 64]`` to ``[n, 6]``."""
        return self.inner(x)


class Sized(Module):
    """A module that takes an argument."""

    def __init__(self, width: int) -> None:
        self.inner = Linear(width, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Two outputs."""
        return self.inner(x), x


class Failing(Module):
    """A module whose code has a mistake."""

    def __init__(self) -> None:
        self.inner = Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Raise an error."""
        return self.inner(x) + float("missing")


def sized() -> Sized:
    """The module that takes an argument, with one."""
    return Sized(5)


def broken() -> Module:
    """Raise an error."""
    raise RuntimeError("nobody is home")


mlp = MLP()
not_a_module = 3
