"""BitNet b1.58: weights of -1, 0 and 1 with a scale for all, four of them in a byte.

``weight`` is ``[rows / 4, columns]``: a byte has two bits of row ``r``, the lowest, of row
``r + rows / 4`` and so on, each one more than the number. ``weight_scale`` is what numbers are
multiplied by (``autobitlinear``) or divided by (``bitlinear``), once they met the input. Of the
former numbers may be floats as well, one for each weight, as transformers saves what it has read.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.weights.schemes.scaled_rows import SCALE_TYPES
from maxtool.weights.schemes.scheme import Arrays, Layout, Meaning, Misfit, Parts, expect, matrix
from maxtool.weights.schemes.settings import OFF, OneOf, Rule, anything, check

WEIGHT, SCALE = ".weight", ".weight_scale"
BYTES = frozenset({DType.uint8})
PER_BYTE, BITS = 4, 2
LARGEST = 2  # of the numbers, one more than each

RULES: Mapping[str, Rule] = {
    "quant_method": OneOf("bitnet"),
    "linear_class": OneOf("bitlinear", "autobitlinear"),
    "quantization_mode": OneOf("offline"),
    "use_rms_norm": OFF,
    **anything("modules_to_not_convert", "rms_norm_eps"),
}


def layouts(config: Mapping[str, Any]) -> tuple[Layout, ...]:
    """Read a ``quantization_config`` of BitNet; ``Unsupported`` says what is."""
    check(config, RULES)
    divides = config.get("linear_class") != "autobitlinear"
    return (Layout(SCALE, WEIGHT, WEIGHT, partial(_meaning, divides)),)


def _meaning(divides: bool, parts: Parts, _early: Arrays) -> Meaning:
    rows, columns = matrix(parts[WEIGHT])
    expect(parts[SCALE], SCALE_TYPES, (1,))
    dtype = parts[SCALE].dtype
    if not divides and parts[WEIGHT].dtype in SCALE_TYPES:
        return Meaning("TERNARY", (rows, columns), dtype, _multiply)
    expect(parts[WEIGHT], BYTES)
    return Meaning("TERNARY", (rows * PER_BYTE, columns), dtype, partial(_decode, divides))


def _multiply(arrays: Arrays, out: NDArray[Any]) -> None:
    scale = arrays[SCALE].astype(np.float32)
    with np.errstate(all="ignore"):
        out[...] = arrays[WEIGHT].astype(np.float32) * scale


def _decode(divides: bool, arrays: Arrays, out: NDArray[Any]) -> None:
    """The scale, its negative, or 0; a reciprocal is rounded once."""
    scale = arrays[SCALE].astype(np.float32)
    with np.errstate(divide="ignore"):
        scale = np.float32(1) / scale if divides else scale
    values = (np.array([-1, 0, 1], np.float32) * scale).astype(out.dtype)
    packed = arrays[WEIGHT]
    for place in range(PER_BYTE):
        numbers = packed >> (BITS * place) & ((1 << BITS) - 1)
        if (numbers > LARGEST).any():
            raise Misfit("a weight is 2, and not one of -1, 0 and 1")
        out[place * len(packed) : (place + 1) * len(packed)] = values[numbers]
