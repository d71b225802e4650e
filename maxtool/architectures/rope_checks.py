"""Checks of a decoder's options of positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import TypeAlias

from maxtool.architectures.config import other_lengths
from maxtool.architectures.linear_biases import MOST
from maxtool.architectures.rope_options import RopeOptions

Rule: TypeAlias = Callable[[RopeOptions], Iterator[str]]

# Options that a kind of scaling cannot do without.
SCALING_NEEDS: dict[str, tuple[str, ...]] = {
    "linear": ("rope_factor",),
    "dynamic": ("rope_factor",),
    "llama3": ("rope_factor",),
    "longrope": ("rope_short_factors", "rope_long_factors"),
}

# What positions are called that do not rotate.
WORDS = {
    "learned": "learned positions",
    "sinusoidal": "sinusoidal positions",
    "alibi": "linear biases",
    "relative": "relative positions",
}
# The least width of a vector of sines and cosines, of which the slowest is told by their number.
LEAST = 4

PER_FREQUENCY = ("rope_short_factors", "rope_long_factors")


def _needs(config: RopeOptions) -> Iterator[str]:
    for name in SCALING_NEEDS.get(config.rope_scaling, ()):
        if getattr(config, name) is None:
            yield f"rope_scaling {config.rope_scaling!r} needs {name}"


def _factors(config: RopeOptions) -> Iterator[str]:
    yield from other_lengths(config, dict.fromkeys(PER_FREQUENCY, config.rotated // 2))
    for name in PER_FREQUENCY:
        for value in getattr(config, name) or ():
            if not 0 < value < inf:
                yield f"{name} has {value}"


def _rotary(config: RopeOptions) -> Iterator[str]:
    if config.position != "rope":
        return
    if config.rotated % 2:
        name = "head_dim" if config.rotary_dim is None else "rotary_dim"
        yield f"{name} {config.rotated} is odd"
    if config.rotated > config.head_dim:
        yield f"rotary_dim {config.rotated} is more than head_dim {config.head_dim}"


def _scaling(config: RopeOptions) -> Iterator[str]:
    low, high = config.rope_low_freq_factor, config.rope_high_freq_factor
    if config.rope_scaling == "llama3" and low > high:
        yield f"rope_low_freq_factor {low} is more than rope_high_freq_factor {high}"
    if config.rope_scaling == "dynamic" and config.rotated <= 2:
        yield f"rope_scaling 'dynamic' needs more than {config.rotated} rotated elements"
    if config.rope_scaling == "yarn" and config.rope_theta <= 1:
        yield f"rope_scaling 'yarn' needs a rope_theta above 1, not {config.rope_theta}"
    if config.rope_scaling == "longrope" and config.original_context == 1:
        yield "rope_scaling 'longrope' needs an original context of more than one position"
    if config.rope_scaling != "longrope" and config.rope_long_attention_factor is not None:
        yield f"rope_long_attention_factor with rope_scaling {config.rope_scaling!r}"


def _pairs(config: RopeOptions) -> Iterator[str]:
    pairs = config.rope_pairs
    if pairs is None:
        return
    if config.rope_scaling != "proportional":
        yield f"rope_pairs {pairs} with rope_scaling {config.rope_scaling!r}"
    elif not 0 <= pairs <= config.rotated // 2:
        yield f"rope_pairs {pairs} of {config.rotated // 2}"


def _not_rotated(config: RopeOptions) -> Iterator[str]:
    if config.position not in WORDS:
        return
    words = WORDS[config.position]
    if config.rope_scaling != "none":
        yield f"rope_scaling {config.rope_scaling!r} with {words}"
    for name in ("rotary_dim", "rope_layers", "rope_local_theta"):
        if getattr(config, name) is not None:
            yield f"{name} with {words}"


def _reversed(config: RopeOptions) -> Iterator[str]:
    if config.rope_reversed and (config.position != "rope" or config.rope_local_theta is not None):
        yield "rope_reversed is for rotary positions of one base alone"


def _biases(config: RopeOptions) -> Iterator[str]:
    if config.position == "alibi" and config.context_length > MOST:
        yield f"context_length {config.context_length} with linear biases: at most {MOST}"


def _sinusoids(config: RopeOptions) -> Iterator[str]:
    if config.position == "sinusoidal" and config.hidden_size < LEAST:
        yield f"hidden_size {config.hidden_size} with sinusoidal positions: at least {LEAST}"
    if config.position != "sinusoidal" and config.position_padding is not None:
        yield f"position_padding {config.position_padding} with position {config.position!r}"


RULES: tuple[Rule, ...] = (
    *(_needs, _factors, _rotary, _scaling, _pairs, _reversed, _not_rotated, _biases, _sinusoids),
)
