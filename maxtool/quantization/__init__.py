"""Block quantization: the table of encodings, and their codecs, a file per family."""

from maxtool.quantization.codec import accelerated, dequantize, quantize
from maxtool.quantization.encoding import QuantizationEncoding

__all__ = ["QuantizationEncoding", "accelerated", "dequantize", "quantize"]
