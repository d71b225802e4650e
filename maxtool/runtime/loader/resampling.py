"""Sounds at another rate: a sinc in a Kaiser window, band-limited to the lower of both rates.

The window is ``ZEROS`` crossings of zero wide on each side, and its shape ``BETA``; the sinc passes
the share ``ROLLOFF`` of what the lower rate can carry. Beyond both ends the sound is zero.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .memory import Array

ZEROS, BETA, ROLLOFF = 32, 10.0, 0.94
AT_ONCE = 1 << 21  # numbers that are multiplied, about


def resampled(samples: Array, rate: int, wanted: int) -> Array:
    """Samples at ``wanted`` a second, float32, of those at ``rate``; the first stays the first."""
    if rate == wanted or not len(samples):
        return samples
    shared = math.gcd(rate, wanted)
    up, down = wanted // shared, rate // shared
    reach = _reach(up, down)
    padded = np.pad(samples.astype(np.float64), reach)
    result = np.zeros(-(-len(samples) * up // down), np.float32)
    windows, most = sliding_window_view(padded, 2 * reach + 1), AT_ONCE // reach
    for first in range(min(up, len(result))):
        start, phase = divmod(first * down, up)
        rows, factors = windows[start::down], coefficients(phase, up, down)
        places = range(first, len(result), up)
        for at in range(0, len(places), most):
            result[places[at : at + most]] = rows[at : at + most][: len(places) - at] @ factors
    return result


def _reach(up: int, down: int) -> int:
    """Samples that a result depends on, on each side."""
    return math.ceil(ZEROS * max(1.0, down / up)) + 1


def coefficients(phase: int, up: int, down: int) -> Array:
    """Factors of the samples around a result that lies ``phase / up`` behind the middle one."""
    reach, narrow = _reach(up, down), max(1.0, down / up)
    distance = np.arange(-reach, reach + 1) - phase / up
    inside = np.clip(1 - (distance / (ZEROS * narrow)) ** 2, 0, None)
    window = np.i0(BETA * np.sqrt(inside)) / np.i0(BETA) * (inside > 0)
    cut = ROLLOFF / narrow
    factors: Array = cut * np.sinc(cut * distance) * window
    return factors
