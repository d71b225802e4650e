"""Rotary position embedding: what both styles of layer share, and the layer of the graph style."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import DerivedWeight, Tensor, ops
from maxtool.nn.module import Module


def rotated(
    x: Tensor, tables: tuple[Tensor, Tensor], start: int | Tensor, *, interleaved: bool
) -> Tensor:
    """``x`` with each pair of a head turned by the angle of its position (Su et al. 2021).

    Args:
        x: ``[batch, seq, heads, head_dim]``, floats; computed in float32.
        tables: Cosines and sines, float32 ``[positions, head_dim / 2]``.
        start: The position of the first token, or an int32 ``[1]``.
        interleaved: Whether neighbours are a pair; else the two halves of a head are.
    """
    cos, sin = tables
    _require_positions(x, cos, start)
    if not isinstance(start, Tensor):
        start = Tensor([start], DType.int32, x.device)
    wide = x if x.dtype is DType.float32 else ops.cast(x, DType.float32)
    *outer, dim = x.shape
    pairs, last = int(dim) // 2, (0, 1, 2, 4, 3)
    if interleaved:
        wide = ops.reshape(ops.permute(ops.reshape(wide, [*outer, pairs, 2]), last), x.shape)
    turned = ops.rope(wide, cos, sin, start)
    if interleaved:
        turned = ops.reshape(ops.permute(ops.reshape(turned, [*outer, 2, pairs]), last), x.shape)
    return turned if x.dtype is DType.float32 else ops.cast(turned, x.dtype)


def _require_positions(x: Tensor, cos: Tensor, start: int | Tensor) -> None:
    rows, pairs = cos.shape.static()
    if x.rank != 4 or x.shape[3] != 2 * pairs:
        raise ValueError(f"rotary embedding of [batch, seq, heads, {2 * pairs}], not {x.type}")
    if not isinstance(start, Tensor) and start < 0:
        raise ValueError(f"positions are counted from 0, not from {start}")
    if not isinstance(start, Tensor) and x.shape[1].is_static and start + int(x.shape[1]) > rows:
        length = int(x.shape[1])
        raise ValueError(f"{length} tokens from position {start} on: there are {rows} positions")


@dataclass(frozen=True)
class _Angles:
    """Parameters of a graph layer's tables; layers with equal ones share the tables."""

    dim: int
    theta: float
    positions: int

    def angles(self) -> np.ndarray[Any, Any]:
        """Radians, ``[positions, dim / 2]``."""
        exponents = np.arange(0, self.dim, 2, dtype=np.float64) / self.dim
        return np.outer(np.arange(self.positions, dtype=np.float64), self.theta**-exponents)

    def table(self, name: str) -> DerivedWeight:
        """Cosines or sines, in no state."""
        shape = (self.positions, self.dim // 2)
        path = f"rope.{self.dim}.{self.theta:g}.{self.positions}.{name}"
        return DerivedWeight(path, DType.float32, shape, partial(self._values, name))

    def _values(self, name: str) -> np.ndarray[Any, Any]:
        function = np.cos if name == "cos" else np.sin
        values: np.ndarray[Any, Any] = function(self.angles()).astype(np.float32)
        return values

    @cached_property
    def tables(self) -> tuple[DerivedWeight, DerivedWeight]:
        """Cosines and sines."""
        return self.table("cos"), self.table("sin")


class RotaryEmbedding(Module[..., Tensor]):
    """Rotary position embedding of queries or keys. It has no weights of its own.

    Args:
        dim: Width of the hidden state.
        n_heads: How many heads it makes.
        theta: The base of the frequencies: pair ``i`` turns by ``theta ** (-2 i / head_dim)`` per
            position.
        max_seq_len: The longest sequence; the tables are twice as long.
        head_dim: Width of a head; ``dim / n_heads`` by default.
        interleaved: Whether neighbours are a pair; else the two halves of a head are.

    Raises:
        ValueError: If the width of a head is odd, or a size is not positive.
    """

    def __init__(
        self,
        dim: int,
        n_heads: int,
        theta: float,
        max_seq_len: int,
        head_dim: int | None = None,
        interleaved: bool = True,
    ) -> None:
        self.dim, self.n_heads, self.theta, self.max_seq_len = dim, n_heads, theta, max_seq_len
        self.head_dim = dim // n_heads if head_dim is None else head_dim
        self.interleaved = interleaved
        if min(self.head_dim, max_seq_len, theta) <= 0 or self.head_dim % 2:
            raise ValueError(
                f"rotary embedding of heads of {self.head_dim}, {max_seq_len} positions and base"
                f" {theta}: sizes are above 0, and a head is even"
            )
        self._angles = _Angles(self.head_dim, float(theta), 2 * max_seq_len)

    @property
    def freqs_cis(self) -> Tensor:
        """Cosine and sine of each pair in turn, float32 ``[2 * max_seq_len, head_dim]``."""
        angles = self._angles.angles()
        pairs = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        return Tensor(pairs.reshape(len(angles), -1).astype(np.float32))

    def compute_scale(self, user_scale: float | None = None) -> float:
        """Return the factor of scores: ``head_dim ** -0.5`` unless the user gives one."""
        return self.head_dim**-0.5 if user_scale is None else user_scale

    def forward(
        self, x: Tensor, start_pos: int | Tensor | None = None, seq_len: int | None = None
    ) -> Tensor:
        """Map ``[batch, seq, heads, head_dim]`` to the same shape.

        Args:
            x: Queries or keys.
            start_pos: The position of the first, 0 by default; or an int32 ``[1]``.
            seq_len: The length of ``x``, which it has in any case.

        Raises:
            ValueError: If ``x`` is none of these, of another length, or beyond the last position.
        """
        if seq_len is not None and x.rank == 4 and x.shape[1] != seq_len:
            raise ValueError(f"{x.type} is not a sequence of {seq_len}")
        start = 0 if start_pos is None else start_pos
        cos, sin = (table.on(x.device) for table in self._angles.tables)
        return rotated(x, (cos, sin), start, interleaved=self.interleaved)
