"""A linear map with a random weight."""

from __future__ import annotations

from typing import Literal

from maxtool.dtype import DType
from maxtool.graph import Dim, DimLike, Tensor, TensorType, ops, random
from maxtool.nn.eager.module import Module
from maxtool.nn.eager.rendering import Parts


class Linear(Module[[Tensor], Tensor]):
    """``x @ weight.T + bias``.

    Args:
        in_dim: The width of the input.
        out_dim: The width of the output.
        bias: Whether there is a bias; or the bias.

    Raises:
        TypeError: If the bias is neither a tensor nor true or false.
        ValueError: If it is a tensor of another type or shape than the layer's.

    Attributes:
        weight: ``[out_dim, in_dim]``, drawn from the standard normal distribution.
        bias: ``[out_dim]``, likewise or as given, or 0.
    """

    weight: Tensor
    bias: Tensor | Literal[0]

    def __init__(
        self, in_dim: DimLike, out_dim: DimLike, *, bias: Tensor | bool | Literal[0] = True
    ) -> None:
        self.weight = random.normal([out_dim, in_dim])
        self.bias = _checked(bias, self.weight) if isinstance(bias, Tensor) else 0
        if bias is True:
            self.bias = random.normal([out_dim])
        elif not isinstance(bias, Tensor | bool) and bias != 0:
            raise TypeError(f"the bias is a Tensor, True or False, not {bias!r}")

    @property
    def in_dim(self) -> Dim:
        """The width of the input."""
        return self.weight.shape[1]

    @property
    def out_dim(self) -> Dim:
        """The width of the output."""
        return self.weight.shape[0]

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., in_dim]`` to ``[..., out_dim]``."""
        bias = self.bias if isinstance(self.bias, Tensor) else None
        return ops.linear(x, self.weight, bias)

    def input_types(self) -> list[TensorType]:
        """A batch of rows."""
        return [TensorType(DType.float32, ["batch", self.in_dim], self.device)]

    def __rich_repr__(self) -> Parts:
        yield "in_dim", self.in_dim
        yield "out_dim", self.out_dim
        yield "bias", isinstance(self.bias, Tensor), True


def _checked(bias: Tensor, weight: Tensor) -> Tensor:
    """A bias that fits a weight."""
    if (bias.dtype, bias.shape) != (weight.dtype, weight.shape[:1]):
        wanted = f"{weight.dtype.value}{weight.shape[:1]}"
        raise ValueError(f"the bias is {bias.type}, expected {wanted}")
    return bias
