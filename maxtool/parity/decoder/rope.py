"""Rotary positions (arXiv:2104.09864), and what stretches them to longer sequences.

Transformers computes the tables of cosines and sines in float32, and an angle rounded there is
what a model was trained and recorded with: at position 500 the float64 angle is off by 3e-5. So
the tables here are rounded where transformers 5.23 (``modeling_rope_utils.py``) rounds them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Single = NDArray[np.float32]


class Scaling(Protocol):
    """How frequencies are changed for sequences longer than the model was first trained on.

    Attributes:
        depends_on_length: Whether the frequencies depend on the sequence's length.
        attention: What cosines and sines are multiplied by.
    """

    @property
    def depends_on_length(self) -> bool: ...  # noqa: D102 - described above
    @property
    def attention(self) -> float: ...  # noqa: D102 - described above

    def frequencies(self, dim: int, theta: float, length: int) -> Single:
        """Angle by which each plane of a head turns from one position to the next.

        Args:
            dim: Features of a head that rotate.
            theta: Base of the geometric series of frequencies.
            length: How long the sequence is.
        """


def plain(dim: int, theta: float | np.float32) -> Single:
    """The frequencies of the paper: ``theta ** (-2 i / dim)``."""
    return np.reciprocal(power(theta, exponents(dim)))


def exponents(dim: int) -> Single:
    """``2 i / dim`` for each plane."""
    return np.arange(0, dim, 2).astype(np.float32) / np.float32(dim)


def power(base: float | np.float32, exponent: Single) -> Single:
    """``base`` to the power of each exponent, computed in float64 and rounded once."""
    exact: Array = np.power(np.float64(np.float32(base)), exponent.astype(np.float64))
    return exact.astype(np.float32)


@dataclass(frozen=True, slots=True)
class Unscaled:
    """The frequencies as they are."""

    depends_on_length: ClassVar[bool] = False
    attention: ClassVar[float] = 1.0

    def frequencies(self, dim: int, theta: float, length: int) -> Single:  # noqa: ARG002 - Scaling
        """See :class:`Scaling`."""
        return plain(dim, theta)


@dataclass(frozen=True, slots=True)
class Linear:
    """Positions divided by a factor (arXiv:2306.15595)."""

    factor: float
    depends_on_length: ClassVar[bool] = False
    attention: ClassVar[float] = 1.0

    def frequencies(self, dim: int, theta: float, length: int) -> Single:  # noqa: ARG002 - Scaling
        """See :class:`Scaling`."""
        return plain(dim, theta) / np.float32(self.factor)


@dataclass(frozen=True, slots=True)
class Divided:
    """Frequencies divided by numbers that the file lists, as GGUF keeps Llama 3's scaling."""

    divisors: tuple[float, ...]
    depends_on_length: ClassVar[bool] = False
    attention: ClassVar[float] = 1.0

    def frequencies(self, dim: int, theta: float, length: int) -> Single:  # noqa: ARG002 - Scaling
        """See :class:`Scaling`."""
        divisors: Single = np.array(self.divisors, np.float32)
        return plain(dim, theta) / divisors


@dataclass(frozen=True, slots=True)
class Dynamic:
    """A base that grows with the sequence once that is longer than ``context``."""

    factor: float
    context: int
    depends_on_length: ClassVar[bool] = True
    attention: ClassVar[float] = 1.0

    def frequencies(self, dim: int, theta: float, length: int) -> Single:
        """See :class:`Scaling`."""
        if length <= self.context:
            return plain(dim, theta)
        stretched = np.float32(self.factor) * np.float32(length) / np.float32(self.context)
        exponent: Single = np.full(1, dim / (dim - 2), np.float32)
        growth = power(stretched - np.float32(self.factor - 1), exponent)
        return plain(dim, np.float32(theta) * growth[0])


@dataclass(frozen=True, slots=True)
class Llama3:
    """Low frequencies divided by a factor, high ones kept, those between in proportion."""

    factor: float
    low: float
    high: float
    original: int
    depends_on_length: ClassVar[bool] = False
    attention: ClassVar[float] = 1.0

    def frequencies(self, dim: int, theta: float, length: int) -> Single:  # noqa: ARG002 - Scaling
        """See :class:`Scaling`."""
        kept = plain(dim, theta)
        wavelength = np.float32(2 * math.pi) / kept
        share = (np.float32(self.original) / wavelength - np.float32(self.low)) / np.float32(
            self.high - self.low
        )
        divided = kept / np.float32(self.factor)
        between = (1 - share) * divided + share * kept
        long, short = self.original / self.low, self.original / self.high
        scaled = np.where(wavelength < short, kept, between)
        return np.where(wavelength > long, divided, scaled)


@dataclass(frozen=True, slots=True)
class Yarn:
    """YaRN (arXiv:2309.00071): planes that turn often in the original context stay as they are.

    Attributes:
        factor: By how much the context is stretched.
        original: The original context.
        attention: What cosines and sines are multiplied by.
        fast: Planes that turn more often than this in the original context are kept.
        slow: Planes that turn less often than this are stretched by the whole factor.
        truncate: Whether the planes between begin and end at whole numbers.
    """

    factor: float
    original: int
    attention: float
    fast: float = 32.0
    slow: float = 1.0
    truncate: bool = True
    depends_on_length: ClassVar[bool] = False

    def frequencies(self, dim: int, theta: float, length: int) -> Single:  # noqa: ARG002 - Scaling
        """See :class:`Scaling`."""
        periods = power(theta, exponents(dim))
        kept, divided = 1 / periods, 1 / (np.float32(self.factor) * periods)
        low, high = self._planes(dim, theta)
        ramp = (np.arange(dim // 2, dtype=np.float32) - np.float32(low)) / np.float32(high - low)
        share = 1 - np.clip(ramp, 0, 1)
        blended: Single = divided * (1 - share) + kept * share
        return blended

    def _planes(self, dim: int, theta: float) -> tuple[float, float]:
        """The planes that turn ``fast`` and ``slow`` times in the original context."""
        low, high = (
            dim * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(theta))
            for turns in (self.fast, self.slow)
        )
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        return low, high + 0.001 if low == high else high


@dataclass(frozen=True, slots=True)
class LongRope:
    """LongRoPE (arXiv:2402.13753): one divisor for each plane, others for long sequences."""

    short: tuple[float, ...]
    long: tuple[float, ...]
    original: int
    attention: float
    depends_on_length: ClassVar[bool] = True

    def frequencies(self, dim: int, theta: float, length: int) -> Single:
        """See :class:`Scaling`."""
        chosen = self.long if length > self.original else self.short
        periods: Single = np.array(chosen, np.float32) * power(theta, exponents(dim))
        return np.reciprocal(periods)


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
        scaled: Single = values.astype(np.float32) * np.float32(self.scaling.attention)
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
