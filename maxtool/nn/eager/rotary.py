"""Rotary position embedding by a table."""

from __future__ import annotations

from typing import ClassVar

from maxtool.graph import Tensor
from maxtool.nn.eager.module import Module
from maxtool.nn.eager.rendering import Parts
from maxtool.nn.rotary import rotated


class RotaryEmbedding(Module[..., Tensor]):
    """Rotary position embedding of queries or keys, neighbours being the pairs.

    Args:
        weight: float32 ``[positions, head_dim / 2, 2]``: cosine and sine of each pair's angle.

    Raises:
        ValueError: If the table has another shape.
    """

    weight: Tensor
    interleaved: ClassVar[bool] = True

    def __init__(self, weight: Tensor) -> None:
        if weight.rank != 3 or weight.shape[2] != 2:
            raise ValueError(f"the table is [positions, head_dim / 2, 2], not {weight.type}")
        self.weight = weight

    @property
    def dim(self) -> int:
        """The width of a head."""
        return 2 * int(self.weight.shape[1])

    @property
    def max_sequence_length(self) -> int:
        """Number of positions."""
        return int(self.weight.shape[0])

    def forward(self, x: Tensor, start_pos: int | Tensor = 0) -> Tensor:
        """Map ``[batch, seq, heads, head_dim]`` to the same shape.

        Args:
            x: Queries or keys.
            start_pos: The position of the first; or an int32 ``[1]``.

        Raises:
            ValueError: If ``x`` is none of these, or reaches beyond the last position.
        """
        tables = self.weight[:, :, 0], self.weight[:, :, 1]
        return rotated(x, tables, start_pos, interleaved=self.interleaved)

    def __rich_repr__(self) -> Parts:
        yield "dim", self.dim
        yield "max_sequence_length", self.max_sequence_length


class TransposedRotaryEmbedding(RotaryEmbedding):
    """Rotary position embedding whose pairs are the two halves of a head."""

    interleaved = False
