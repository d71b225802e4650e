"""Ways to quantize, as tests ask for them."""

from __future__ import annotations

from dataclasses import replace

from maxtool.quantization import QuantizationEncoding
from maxtool.quantization.scheme import Scheme


def pure(encoding: QuantizationEncoding) -> Scheme:
    """One type for all matrices."""
    return replace(Scheme.named(encoding.name), pure=True)
