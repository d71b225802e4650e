"""Block quantization: the table of encodings, and their codecs, a file per family."""

from maxtool.quantization.codec import dequantize, quantize
from maxtool.quantization.encoding import QuantizationEncoding

__all__ = ["QuantizationEncoding", "dequantize", "quantize"]
