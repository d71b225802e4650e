"""A network of two layers that reads pictures of digits, 8 by 8."""

from __future__ import annotations

from maxtool.graph import Tensor, ops
from maxtool.nn import Linear, Module


class Digits(Module[[Tensor], dict[str, Tensor]]):
    """A multilayer perceptron: 64 inputs, 32 hidden units, 10 digits."""

    def __init__(self) -> None:
        self.hidden = Linear(64, 32, has_bias=True)
        self.digits = Linear(32, 10, has_bias=True)

    def forward(self, picture: Tensor) -> dict[str, Tensor]:
        """Read pictures ``[batch, 8, 8]``: the digit of each, and how likely each digit is."""
        pixels = ops.reshape(picture, [picture.shape[0], 64])
        scores = self.digits(ops.relu(self.hidden(pixels)))
        digit = ops.squeeze(ops.argmax(scores), -1)
        return {"digit": digit, "share": ops.softmax(scores)}
