"""Quantizers of this process, each loaded or compiled in memory when it is first asked for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from maxtool.compiler.quantizers import kept_libraries
from maxtool.quantization import QuantizationEncoding
from maxtool.quantization.acceleration import COMPILED, register
from maxtool.quantization.block import UInt8
from maxtool.quantization.importance import BlockWeights
from maxtool.runtime.loader.ffi import import_ffi

tvm_ffi = import_ffi()

# The types of elements, by NumPy's, and as what kernels are given them.
SOURCES: dict[np.dtype[Any], tuple[str, type[np.generic]]] = {
    np.dtype(np.float32): ("float32", np.float32),
    np.dtype(np.float16): ("float16", np.float16),
    np.dtype(ml_dtypes.bfloat16): ("bfloat16", np.uint16),
}


@dataclass(frozen=True, slots=True)
class CompiledQuantizer:
    """A quantizer for blocks of one type, on the thread that calls it.

    Attributes:
        batch: How many blocks it works on at a time.
        storage: The type that elements are passed as.
        run: The compiled function.
    """

    batch: int
    storage: type[np.generic]
    run: Callable[..., object]

    def __call__(
        self, blocks: NDArray[Any], records: UInt8, weights: BlockWeights | None = None
    ) -> list[slice]:
        """Write the records of blocks; returns which it left, in slices.

        ``weights`` are what it weighs errors by, if it does.
        """
        if not len(blocks):
            return []
        left = np.zeros(-(-len(blocks) // self.batch), np.int32)
        source = np.ascontiguousarray(blocks).view(self.storage)
        given = [_passed(array) for array in (source, *(weights or ()))]
        self.run(*map(tvm_ffi.from_dlpack, (given[0], records, left, *given[1:])))
        return _runs(left, self.batch, len(blocks))


@cache
def quantizer(
    encoding: QuantizationEncoding, dtype: np.dtype[Any], weighed: bool
) -> CompiledQuantizer | None:
    """Return the quantizer for an encoding and a type of elements, if there is one.

    ``weighed`` is whether it weighs errors by importance.
    """
    if encoding not in COMPILED or dtype not in SOURCES:
        return None
    name, storage = SOURCES[dtype]
    batch, run = _kept(encoding, name, weighed) or _built(encoding, name, weighed)
    return CompiledQuantizer(batch, storage, run)


def _kept(
    encoding: QuantizationEncoding, dtype: str, weighed: bool
) -> tuple[int, Callable[..., object]] | None:
    """A quantizer that was compiled before, loaded without the compiler."""
    library = kept_libraries.find(encoding.name, dtype, weighed)
    if library is None:
        return None
    try:
        module = tvm_ffi.load_module(str(library.path))
        return library.batch, module.get_function("quantize")
    except Exception:  # whatever it is, it can be compiled anew
        return None


def _built(
    encoding: QuantizationEncoding, dtype: str, weighed: bool
) -> tuple[int, Callable[..., object]]:
    """A quantizer that is compiled now, and kept for later where there is a linker and a place."""
    from maxtool.compiler.cpu_target import cpu_target
    from maxtool.compiler.linking import export_library
    from maxtool.compiler.quantizers.quantizer_kernels import NAME, module_for

    target = cpu_target()
    module, batch = module_for(encoding, dtype, target, weighed=weighed), target.tile.width
    with suppress(Exception):
        export = partial(export_library, module, target=target)
        kept_libraries.keep(batch, export, encoding.name, dtype, weighed)
    return batch, module[NAME]


def _passed(array: NDArray[Any]) -> NDArray[Any]:
    """An array that is only read, in order, as DLPack lets TVM have it; not kept alive."""
    array = np.ascontiguousarray(array)
    if array.flags.writeable:
        return array
    memory = (ctypes.c_uint8 * array.nbytes).from_address(array.ctypes.data)
    return np.ndarray(array.shape, array.dtype, memoryview(memory))


def _runs(left: NDArray[np.int32], batch: int, blocks: int) -> list[slice]:
    """The blocks of batches that are left, those of neighbours together."""
    edges = np.flatnonzero(np.diff(left, prepend=0, append=0)).reshape(-1, 2)
    return [slice(first * batch, min(end * batch, blocks)) for first, end in edges.tolist()]


register(quantizer)
