"""ggml's own quantizers, called in a shared library."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.quantization import QuantizationEncoding

POINTER, COUNT = ctypes.c_void_p, ctypes.c_int64


class Ggml:
    """A library ``libggml-base``, which llama-quantize calls for every type."""

    def __init__(self, library: Path) -> None:
        self._quantize: Any = ctypes.CDLL(str(library)).ggml_quantize_chunk
        self._quantize.restype = ctypes.c_size_t
        self._quantize.argtypes = (ctypes.c_int, POINTER, POINTER, COUNT, COUNT, COUNT, POINTER)

    def quantize(
        self,
        values: NDArray[np.float32],
        encoding: QuantizationEncoding,
        importance: NDArray[np.float32] | None = None,
    ) -> NDArray[np.uint8]:
        """Encode ``[rows, row]`` as llama-quantize does, with the importance of columns or not."""
        values = np.ascontiguousarray(values, np.float32)
        rows, row = values.shape
        packed = np.zeros((rows, encoding.row_bytes(row)), np.uint8)
        weights = None if importance is None else np.ascontiguousarray(importance, np.float32)
        pointer = None if weights is None else weights.ctypes.data
        arrays = values.ctypes.data, packed.ctypes.data
        self._quantize(encoding.gguf_id, *arrays, 0, rows, row, pointer)
        return packed


def installed() -> Path | None:
    """Return the library that llama-cpp-python has beside its modules, if it is installed."""
    spec = importlib.util.find_spec("llama_cpp")
    folders = (spec.submodule_search_locations or []) if spec else []
    libraries = [file for folder in folders for file in Path(folder).glob("lib/libggml-base.*")]
    return libraries[0] if libraries else None
