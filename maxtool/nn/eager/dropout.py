"""Dropout, which does nothing when a model runs."""

from __future__ import annotations

from maxtool.graph import Tensor
from maxtool.nn.eager.module import Module
from maxtool.nn.eager.rendering import Parts


class Dropout(Module[[Tensor], Tensor]):
    """The identity: elements are dropped in training only.

    Args:
        p: The share that training dropped, kept to be shown.

    Raises:
        ValueError: If it is no share.
    """

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"p is a share from 0 to 1, not {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """``x`` itself."""
        return x

    def __rich_repr__(self) -> Parts:
        yield "p", self.p
