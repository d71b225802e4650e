"""Kernels that quantize, for a CPU, and the code that they become."""

from __future__ import annotations

from typing import Any

from maxtool.compiler.cpu_target import CpuTarget
from maxtool.compiler.kernels.cpu import builder
from maxtool.compiler.kernels.cpu.builder import PrimFunc
from maxtool.compiler.quantizers import (
    affine_quantizers,
    legacy_quantizers,
    symmetric_quantizers,
    uneven_quantizers,
)
from maxtool.compiler.quantizers.batches import block_quantizer
from maxtool.quantization import QuantizationEncoding

QUANTIZERS = {
    **legacy_quantizers.QUANTIZERS,
    **affine_quantizers.QUANTIZERS,
    **symmetric_quantizers.QUANTIZERS,
    **uneven_quantizers.QUANTIZERS,
}
# What the function of a module is called.
NAME = "quantize"


def kernel_for(
    encoding: QuantizationEncoding, dtype: str, target: CpuTarget, *, weighed: bool
) -> PrimFunc:
    """Build the kernel of a target: as many blocks at a time as a register has lanes."""
    width = target.tile.width
    return block_quantizer(encoding, dtype, width, QUANTIZERS[encoding], weighed=weighed)


def module_for(
    encoding: QuantizationEncoding, dtype: str, target: CpuTarget, *, weighed: bool
) -> Any:  # noqa: ANN401 - tvm ships no types
    """Compile the kernel of a target, in memory."""
    kernel = kernel_for(encoding, dtype, target, weighed=weighed)
    return builder.build({NAME: kernel}, target.tvm)
