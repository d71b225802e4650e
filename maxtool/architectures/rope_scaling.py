"""Frequencies of rotary positions, and how they are scaled for longer contexts.

Each is computed as transformers 5 does (``modeling_rope_utils.py``), rounded to float32 where that
rounds, since an angle is a frequency times a position: a last digit counts thousands of times.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.errors import ConfigurationError

Frequencies: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float32]]
Scaling: TypeAlias = Callable[[DecoderConfig, int], Frequencies]

F32 = np.float32

BETA_FAST, BETA_SLOW = 32.0, 1.0  # of yarn, where the configuration has none

# Scalings that give other frequencies for a sequence longer than the original context.
BY_LENGTH = ("dynamic", "longrope")


def waves(dim: int, theta: float) -> Frequencies:
    """``theta ** (2 i / dim)`` for each pair ``i``: 1 over the frequency (Su et al. 2021)."""
    exponents = np.arange(0, dim, 2, dtype=np.float32) / F32(dim)
    return np.power(np.float64(F32(theta)), exponents.astype(np.float64)).astype(np.float32)


def frequencies(config: DecoderConfig, length: int) -> Frequencies:
    """The ``rotated / 2`` frequencies, in radians per position, for a sequence of that length."""
    with np.errstate(all="ignore"):
        result = SCALINGS[config.rope_scaling](config, length)
    if not np.isfinite(result).all():
        raise ConfigurationError(
            f"rope_scaling {config.rope_scaling!r} gives rotary frequencies that are not numbers"
        )
    return -result if config.rope_reversed else result


def attention_factor(config: DecoderConfig) -> float:
    """Return the factor of cosines and sines."""
    if config.rope_scaling not in ATTENTION_FACTORS:
        return 1.0
    factor = config.rope_attention_factor
    return ATTENTION_FACTORS[config.rope_scaling](config) if factor is None else factor


def long_attention_factor(config: DecoderConfig) -> float:
    """Return the factor of cosines and sines of a sequence longer than the original context."""
    factor = config.rope_long_attention_factor
    return attention_factor(config) if factor is None else factor


def score_factor(config: DecoderConfig) -> float:
    """Return what scores of latent attention are multiplied by besides, for more positions.

    As DeepSeek-V2 has it: the square of the factor by which YaRN would multiply cosines and sines.
    """
    scale, factor = config.rope_mscale_all_dim, config.rope_factor
    if config.rope_scaling == "none" or not scale or factor is None:
        return 1.0
    return _magnitude(factor, scale) ** 2


def _none(config: DecoderConfig, _length: int) -> Frequencies:
    return F32(1) / waves(config.rotated, config.rope_theta)


def _linear(config: DecoderConfig, _length: int) -> Frequencies:
    """Positions are interpolated (Chen et al. 2023)."""
    return _none(config, 0) / F32(_factor(config))


def _dynamic(config: DecoderConfig, length: int) -> Frequencies:
    """The base grows with the length, by bloc97's and emozilla's NTK-aware rule."""
    original, factor, dim = config.original_context, F32(_factor(config)), config.rotated
    stretch = factor * F32(max(length, original)) / F32(original) - (factor - F32(1))
    grown = F32(config.rope_theta) * np.power(stretch, F32(dim / (dim - 2)), dtype=np.float32)
    return F32(1) / waves(dim, float(grown))


def _llama3(config: DecoderConfig, _length: int) -> Frequencies:
    """Stretch long waves, leave short ones, and interpolate between (Llama 3.1)."""
    plain, factor = _none(config, 0), F32(_factor(config))
    low, high = config.rope_low_freq_factor, config.rope_high_freq_factor
    original = config.original_context
    lengths = F32(2 * math.pi) / plain
    is_long, is_short = lengths > F32(original / low), lengths < F32(original / high)
    if low == high:
        return np.where(is_long, plain / factor, plain)
    share = (F32(original) / lengths - F32(low)) / F32(high - low)
    between: Frequencies = (F32(1) - share) * plain / factor + share * plain
    return np.select([is_long, is_short], [plain / factor, plain], between)


def _yarn(config: DecoderConfig, _length: int) -> Frequencies:
    """Interpolate as llama3 does, by rotations over the original context (Peng et al. 2023)."""
    dim, periods = config.rotated, waves(config.rotated, config.rope_theta)
    low, high = _yarn_range(config)
    ramp = (np.arange(dim // 2, dtype=np.float32) - F32(low)) / F32(high - low)
    kept = F32(1) - np.clip(ramp, F32(0), F32(1))
    interpolated = F32(1) / (F32(_factor(config)) * periods)
    joined: Frequencies = interpolated * (F32(1) - kept) + F32(1) / periods * kept
    return joined


def _yarn_range(config: DecoderConfig) -> tuple[float, float]:
    """The pairs between which frequencies go over from kept to interpolated."""
    fast, slow = config.rope_beta_fast or BETA_FAST, config.rope_beta_slow or BETA_SLOW
    low, high = (_yarn_pair(config, turns) for turns in (fast, slow))
    if config.rope_truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.rotated - 1)
    return low, high if high != low else high + 0.001


def _yarn_pair(config: DecoderConfig, turns: float) -> float:
    """The pair, as a real number, that turns so many times over the original context."""
    waves_in_context = config.original_context / (turns * 2 * math.pi)
    return config.rotated * math.log(waves_in_context) / (2 * math.log(config.rope_theta))


def _longrope(config: DecoderConfig, length: int) -> Frequencies:
    """A divisor for each frequency, of two lists (Ding et al. 2024)."""
    is_long = length > config.original_context
    divisors = config.rope_long_factors if is_long else config.rope_short_factors
    return F32(1) / (np.array(divisors, np.float32) * waves(config.rotated, config.rope_theta))


def _proportional(config: DecoderConfig, _length: int) -> Frequencies:
    """The first pairs of a head are rotated, by what all of it would be (Gemma 4)."""
    rotated = _none(config, 0)[: config.rope_pairs]
    stay = np.zeros(config.rotated // 2 - len(rotated), np.float32)
    return np.asarray(np.concatenate([rotated, stay]) / F32(config.rope_factor or 1.0), F32)


def _factor(config: DecoderConfig) -> float:
    """Return the factor of more positions; by default the ratio of the context lengths."""
    return config.rope_factor or config.context_length / config.original_context


def _yarn_attention(config: DecoderConfig) -> float:
    factor = _factor(config)
    if config.rope_mscale and config.rope_mscale_all_dim:
        whole = _magnitude(factor, config.rope_mscale_all_dim)
        return _magnitude(factor, config.rope_mscale) / whole
    return _magnitude(factor, 1.0)


def _magnitude(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _longrope_attention(config: DecoderConfig) -> float:
    factor = _factor(config)
    if factor <= 1:
        return 1.0
    return math.sqrt(1 + math.log(factor) / math.log(config.original_context))


SCALINGS: dict[str, Scaling] = {
    "none": _none,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "proportional": _proportional,
}
ATTENTION_FACTORS: dict[str, Callable[[DecoderConfig], float]] = {
    "yarn": _yarn_attention,
    "longrope": _longrope_attention,
}
