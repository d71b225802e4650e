"""The block encodings under the name they have in the reference API."""

from maxtool.quantization.encoding import QuantizationEncoding

__all__ = ["QuantizationEncoding"]
