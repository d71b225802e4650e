"""Floats that NumPy lacks, as float32: bfloat16 and those of 8 bits.

Formats: Micikevicius et al. 2022, FP8 Formats for Deep Learning; Noune et al. 2022 (``fnuz``); the
OCP Microscaling specification 1.0 (``e8m0fnu``, powers of two).
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

# Bits of the fraction, and what is subtracted from the exponent.
FORMS = {
    "float8_e4m3fn": (3, 7),
    "float8_e4m3fnuz": (3, 8),
    "float8_e5m2": (2, 15),
    "float8_e5m2fnuz": (2, 16),
}


def widened(bits: Array, dtype: str) -> Array:
    """The float32 values of numbers of a type in ``BITS`` of ``specs.py``, given as their bits."""
    if dtype == "bfloat16":
        return (bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    table: Array = _table(dtype)[bits.view(np.uint8)]
    return table


@cache
def _table(dtype: str) -> Array:
    """The values of all 256 numbers."""
    codes = np.arange(256)
    if dtype not in FORMS:
        return np.where(codes == 255, np.nan, np.exp2(codes - 127.0)).astype(np.float32)
    fraction_bits, bias = FORMS[dtype]
    exponent, fraction = (codes & 127) >> fraction_bits, codes % (1 << fraction_bits)
    leading = (exponent > 0).astype(np.float64)  # denormal numbers have none
    shift = np.maximum(exponent, 1.0) - bias
    sizes = (leading + fraction / (1 << fraction_bits)) * np.exp2(shift)
    values = np.where(codes < 128, sizes, -sizes)
    if dtype.endswith("fnuz"):
        values[128] = np.nan
    elif dtype.endswith("fn"):
        values[[127, 255]] = np.nan
    else:
        values[exponent == 31] = np.nan
        values[[124, 252]] = np.inf, -np.inf
    narrowed: Array = values.astype(np.float32)
    return narrowed
