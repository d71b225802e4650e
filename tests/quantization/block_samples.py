"""Numbers to quantize, and importance of their columns, that are the same everywhere.

Shared by ``tests/data/record_quantizers.py`` and the tests of what it recorded. Only the bits of
PCG64 are used, which NumPy promises never to change, and arithmetic that rounds in one way.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
ROWS, ROW = 3, 1024
GROUP = 16


def _bits(name: str, count: int) -> NDArray[np.uint64]:
    return np.random.PCG64([3, zlib.crc32(name.encode())]).random_raw(count)


def _uniform(name: str, count: int = ROWS * ROW) -> Float32:
    """Multiples of 2**-23 from -1 to 1."""
    return (_bits(name, count) >> np.uint64(40)).astype(np.float32) / np.float32(1 << 23) - 1


def _bell(name: str) -> Float32:
    """Numbers up to 4, most of them near 0."""
    parts = [_uniform(f"{name}{part}") for part in range(4)]
    return parts[0] + parts[1] + parts[2] + parts[3]


def _whole(name: str, least: int, most: int, count: int = ROWS * ROW) -> NDArray[np.int32]:
    """Whole numbers from ``least`` to ``most``."""
    return (_bits(name, count) % np.uint64(most - least + 1)).astype(np.int32) + least


def _few(name: str, percent: int) -> NDArray[np.bool_]:
    return _whole(name, 0, 99) < percent


def _sizes(name: str, least: int, most: int, run: int) -> Float32:
    """Powers of two, the same for ``run`` elements each."""
    exponents = np.repeat(_whole(name, least, most, ROWS * ROW // run), run)
    return np.ldexp(np.float32(1), exponents.astype(np.int32))


def _mixed(name: str) -> Float32:
    """Groups of several sorts: spread, nearly equal, of few numbers, of one sign."""
    bell, uniform = _bell(f"{name} bell"), _uniform(f"{name} uniform")
    sorts = [
        bell,
        uniform * np.float32(2**-20) + 1,
        uniform * np.float32(2**-22) - 1,
        np.floor(bell * 4) / 4,
        np.abs(bell) + 3,
    ]
    chosen = np.repeat(_whole(f"{name} sorts", 0, len(sorts) - 1, ROWS * ROW // GROUP), GROUP)
    return np.choose(chosen, sorts) * _sizes(f"{name} sizes", -20, 6, GROUP)


def samples() -> Mapping[str, Float32]:
    """Return arrays ``[ROWS, ROW]``, whose scales all fit float16, by name."""
    bell, uniform = _bell("bell"), _uniform("uniform")
    one = np.ones(ROWS * ROW, np.float32)
    flat = {
        "bell": bell,
        "small": bell * np.float32(0.02),
        "outliers": bell * np.where(_few("outliers", 1), np.float32(256), np.float32(1)),
        "groups of several sorts": _mixed("mixed"),
        "sizes of groups": bell * _sizes("groups", -12, 3, GROUP),
        "sizes of rows": bell * _sizes("rows", -140, 10, ROW),
        "sizes of elements": bell * _sizes("elements", -100, 10, 1),
        "positive": uniform + 2,
        "negative": uniform - 2,
        "zeros": np.copysign(0 * one, uniform),
        "sparse": bell * np.where(_few("sparse", 5), np.float32(1), np.float32(0)),
        "equal": one * np.float32(0.37),
        "equal and negative": one * np.float32(-0.37),
        "nearly equal": one + uniform * np.float32(2**-21),
        "nearly equal and negative": uniform * np.float32(2**-21) - one,
        "equal in groups": np.repeat(_uniform("equal", ROWS * ROW // GROUP), GROUP),
        "subnormal": bell * np.float32(2**-135),
        "negligible": bell * np.float32(2**-50),
        "large": bell * np.float32(8192),
        "whole": _whole("whole", -3, 3).astype(np.float32),
        "halves": _whole("halves", -31, 31).astype(np.float32) / 2,
        "signs": np.copysign(one, uniform),
    }
    return {name: values.reshape(ROWS, ROW).astype(np.float32) for name, values in flat.items()}


def importances() -> Mapping[str, Float32 | None]:
    """Return importance ``[ROW]`` by name."""
    positive = _uniform("importance", ROW) + 1
    many = np.where(_whole("spikes", 0, 49, ROW) == 0, np.float32(1 << 20), np.float32(1))
    return {
        "none": None,
        "any": positive,
        "spikes": positive * positive * many,
        "gaps": np.where(_whole("gaps", 0, 1, ROW) == 0, np.float32(0), positive),
        "zeros": 0 * positive,
        "tiny": positive * np.float32(2**-100),
    }
