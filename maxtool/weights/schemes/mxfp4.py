"""MXFP4 as gpt-oss ships it: blocks of 32 4-bit floats, and a power of two for each.

``NAME_blocks`` is ``[experts, rows, blocks of a row, 16]``, two numbers in a byte, the first in
the low bits; ``NAME_scales`` ``[experts, rows, blocks of a row]`` holds exponents plus 127. GGUF's
MXFP4 holds the same numbers, so that they stay blocks. A weight is shown with its rows as they are
stored, ``[experts, outputs, inputs]``; transformers transposes the last two when it decodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.quantization.encoding import QuantizationEncoding
from maxtool.weights.schemes.scheme import Arrays, Layout, Meaning, Misfit, Parts, expect
from maxtool.weights.schemes.settings import OneOf, Rule, anything, check

BLOCKS, SCALES = "_blocks", "_scales"
BYTES = frozenset({DType.uint8})
ENCODING = QuantizationEncoding.MXFP4
HALF = ENCODING.elements_per_block // 2
NAN_EXPONENT = 255

RULES: Mapping[str, Rule] = {
    "quant_method": OneOf("mxfp4"),
    **anything("modules_to_not_convert", "dequantize"),
}


def layouts(config: Mapping[str, Any]) -> tuple[Layout, ...]:
    """Read a ``quantization_config`` of MXFP4; ``Unsupported`` says what is."""
    check(config, RULES)
    return (Layout(BLOCKS, "", BLOCKS, _meaning, (SCALES,)),)


def _meaning(parts: Parts, _early: Arrays) -> Meaning:
    blocks = parts[BLOCKS]
    if len(blocks.shape) < 3 or blocks.shape[-1] != HALF or 0 in blocks.shape:
        raise Misfit(f"{blocks.name} has the shape {list(blocks.shape)}, not blocks of {HALF}")
    expect(blocks, BYTES)
    expect(parts[SCALES], BYTES, blocks.shape[:-1])
    *outer, count, _ = blocks.shape
    shape = (*outer, count * ENCODING.elements_per_block)
    return Meaning(ENCODING.name, shape, DType.float32, _rearrange, ENCODING)


def _rearrange(arrays: Arrays, out: NDArray[Any]) -> None:
    """GGUF's blocks: the exponent, then bytes of numbers ``i`` and ``i + 16``, low bits first."""
    exponents, pairs = arrays[SCALES], arrays[BLOCKS]
    if (exponents == NAN_EXPONENT).any():
        raise Misfit("a scale is 255, which is not a number")
    records = out.reshape(*exponents.shape, ENCODING.block_size)
    records[..., 0] = exponents
    low, high = pairs[..., : HALF // 2], pairs[..., HALF // 2 :]
    records[..., 1::2] = (low & 15) | (high << 4)
    records[..., 2::2] = (low >> 4) | (high & np.uint8(0xF0))
