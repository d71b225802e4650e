"""Quantizers compiled for this machine: the bytes of ``maxtool.quantization``, in less time."""
