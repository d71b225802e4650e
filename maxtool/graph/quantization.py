"""Block encodings of quantized weights, by the reference API's path."""

from maxtool.quantization import QuantizationEncoding

__all__ = ["QuantizationEncoding"]
