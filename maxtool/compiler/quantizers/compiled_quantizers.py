"""Quantizers of this process, each compiled in memory when it is first asked for."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import tvm_ffi
from numpy.typing import NDArray

from maxtool.compiler.cpu_target import CpuTarget, cpu_target
from maxtool.compiler.kernels.cpu import builder
from maxtool.compiler.kernels.cpu.builder import PrimFunc
from maxtool.compiler.quantizers import (
    affine_quantizers,
    legacy_quantizers,
    symmetric_quantizers,
    uneven_quantizers,
)
from maxtool.compiler.quantizers.batches import ALIGNMENT, block_quantizer
from maxtool.dtype import DType
from maxtool.quantization import QuantizationEncoding
from maxtool.quantization.acceleration import register
from maxtool.quantization.block import UInt8
from maxtool.quantization.importance import BlockWeights

QUANTIZERS = {
    **legacy_quantizers.QUANTIZERS,
    **affine_quantizers.QUANTIZERS,
    **symmetric_quantizers.QUANTIZERS,
    **uneven_quantizers.QUANTIZERS,
}
SOURCES = {DType[name].to_numpy(): name for name in ALIGNMENT}


class CompiledQuantizer:
    """A quantizer for blocks of one type, on the thread that calls it."""

    def __init__(
        self, encoding: QuantizationEncoding, dtype: str, target: CpuTarget, *, weighed: bool
    ) -> None:
        self.batch = target.tile.width
        kernel = kernel_for(encoding, dtype, target, weighed=weighed)
        self._storage = builder.STORAGE[dtype]
        self._run = builder.build({"quantize": kernel}, target.tvm)["quantize"]

    def __call__(
        self, blocks: NDArray[Any], records: UInt8, weights: BlockWeights | None = None
    ) -> list[slice]:
        """Write the records of blocks; returns which it left, in slices.

        ``weights`` are what it weighs errors by, if it does.
        """
        if not len(blocks):
            return []
        left = np.zeros(-(-len(blocks) // self.batch), np.int32)
        source = np.ascontiguousarray(blocks).view(self._storage)
        arrays = (_writable(source), records, left, *(weights or ()))
        self._run(*map(tvm_ffi.from_dlpack, arrays))
        return _runs(left, self.batch, len(blocks))


def kernel_for(
    encoding: QuantizationEncoding, dtype: str, target: CpuTarget, *, weighed: bool
) -> PrimFunc:
    """Build the kernel of a target: as many blocks at a time as a register has lanes."""
    width = target.tile.width
    return block_quantizer(encoding, dtype, width, QUANTIZERS[encoding], weighed=weighed)


@cache
def quantizer(
    encoding: QuantizationEncoding, dtype: np.dtype[Any], weighed: bool
) -> CompiledQuantizer | None:
    """Return the quantizer for an encoding and a type of elements, if there is one.

    ``weighed`` is whether it weighs errors by importance.
    """
    if encoding not in QUANTIZERS or dtype not in SOURCES:
        return None
    return CompiledQuantizer(encoding, SOURCES[dtype], cpu_target(), weighed=weighed)


def _writable(array: NDArray[Any]) -> NDArray[Any]:
    """The memory of an array that is only read, as DLPack lets TVM have it; not kept alive."""
    if array.flags.writeable:
        return array
    memory = (ctypes.c_uint8 * array.nbytes).from_address(array.ctypes.data)
    return np.ndarray(array.shape, array.dtype, memoryview(memory))


def _runs(left: NDArray[np.int32], batch: int, blocks: int) -> list[slice]:
    """The blocks of batches that are left, those of neighbours together."""
    edges = np.flatnonzero(np.diff(left, prepend=0, append=0)).reshape(-1, 2)
    return [slice(first * batch, min(end * batch, blocks)) for first, end in edges.tolist()]


register(quantizer)
