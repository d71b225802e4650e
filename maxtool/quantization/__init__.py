"""Block quantization: the table of encodings, and their codecs, a file per family."""

from maxtool.quantization.encoding import QuantizationEncoding

__all__ = ["QuantizationEncoding"]
