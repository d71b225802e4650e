"""What stretches rotary positions to sequences longer than a model was first trained on.

Frequencies are float32, rounded where transformers 5.23 (``modeling_rope_utils.py``) rounds them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Single = NDArray[np.float32]


class Scaling(Protocol):
    """How frequencies are changed for sequences longer than the model was first trained on.

    Attributes:
        turn: The length beyond which frequencies depend on how long a sequence is; None if they
            never do.
        attention: What cosines and sines are multiplied by.
    """

    @property
    def turn(self) -> int | None: ...  # noqa: D102 - described above
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

    turn: ClassVar[int | None] = None
    attention: ClassVar[float] = 1.0

    def frequencies(self, dim: int, theta: float, length: int) -> Single:  # noqa: ARG002 - Scaling
        """See :class:`Scaling`."""
        return plain(dim, theta)


@dataclass(frozen=True, slots=True)
class Linear:
    """Positions divided by a factor (arXiv:2306.15595)."""

    factor: float
    turn: ClassVar[int | None] = None
    attention: ClassVar[float] = 1.0

    def frequencies(self, dim: int, theta: float, length: int) -> Single:  # noqa: ARG002 - Scaling
        """See :class:`Scaling`."""
        return plain(dim, theta) / np.float32(self.factor)


@dataclass(frozen=True, slots=True)
class Divided:
    """Frequencies divided by numbers that the file lists, as GGUF keeps Llama 3's scaling."""

    divisors: tuple[float, ...]
    turn: ClassVar[int | None] = None
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
    attention: ClassVar[float] = 1.0

    @property
    def turn(self) -> int:
        """See :class:`Scaling`."""
        return self.context

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
    turn: ClassVar[int | None] = None
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
    turn: ClassVar[int | None] = None

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

    @property
    def turn(self) -> int:
        """See :class:`Scaling`."""
        return self.original

    def frequencies(self, dim: int, theta: float, length: int) -> Single:
        """See :class:`Scaling`."""
        chosen = self.long if length > self.original else self.short
        periods: Single = np.array(chosen, np.float32) * power(theta, exponents(dim))
        return np.reciprocal(periods)


def yarn_attention(factor: float, weight: float = 1.0) -> float:
    """What YaRN multiplies cosines and sines by (arXiv:2309.00071, section 3.4)."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def longrope_attention(factor: float, original: int) -> float:
    """What LongRoPE multiplies cosines and sines by (arXiv:2402.13753)."""
    if factor <= 1 or original <= 1:
        return 1.0
    return math.sqrt(1 + math.log(factor) / math.log(original))
