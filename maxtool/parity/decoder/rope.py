"""Rotary positions (arXiv:2104.09864).

Transformers computes the tables of cosines and sines in float32, and an angle rounded there is
what a model was trained and recorded with: at position 500 the float64 angle is off by 3e-5. So
the tables here are rounded where transformers 5.23 rounds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.parity.decoder.scaling import Scaling, Unscaled

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rope:
    """How queries and keys of a layer are rotated.

    Attributes:
        dim: Features of a head that rotate, from its first; an odd number is rounded up.
        theta: Base of the geometric series of frequencies.
        scaling: What changes the frequencies.
    """

    dim: int
    theta: float = 10000.0
    scaling: Scaling = field(default_factory=Unscaled)

    @property
    def width(self) -> int:
        """Features that rotate: two for each frequency."""
        return 2 * ((self.dim + 1) // 2)

    def tables(self, lengths: Sequence[int]) -> tuple[Array, Array]:
        """Cosines and sines [positions, planes], as float64.

        Args:
            lengths: For each position how long the sequence was when it was computed.
        """
        known = {n: self.scaling.frequencies(self.dim, self.theta, n) for n in set(lengths)}
        positions = np.arange(len(lengths), dtype=np.float32)[:, None]
        angles = (positions * np.stack([known[n] for n in lengths])).astype(np.float64)
        return self._round(np.cos(angles)), self._round(np.sin(angles))

    def _round(self, values: Array) -> Array:
        scaled = values.astype(np.float32) * np.float32(self.scaling.attention)
        return scaled.astype(np.float64)


def rotate(x: Array, tables: tuple[Array, Array], *, pairs: bool) -> Array:
    """Rotate the first features of each head; the others stay.

    Args:
        x: [batch, heads, seq, head_dim].
        tables: Cosines and sines [seq, planes].
        pairs: Whether a plane is two neighbours; else its features lie half the width apart.
    """
    cosines, sines = tables
    planes = cosines.shape[1]
    first: Any = np.s_[0 : 2 * planes : 2] if pairs else np.s_[:planes]
    second: Any = np.s_[1 : 2 * planes : 2] if pairs else np.s_[planes : 2 * planes]
    a, b = x[..., first], x[..., second]
    rotated = x.copy()
    rotated[..., first] = a * cosines - b * sines
    rotated[..., second] = b * cosines + a * sines
    return rotated
