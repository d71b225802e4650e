"""Description of one tensor in a file, read or to be written."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import TABLE, DType
from maxtool.quantization.encoding import QuantizationEncoding
from maxtool.weights.source_file import SourceFile


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor to be written.

    Attributes:
        name: Its name in the file.
        dtype: Type of the elements; float32 when they are quantized.
        shape: Logical shape, slowest dimension first.
        encoding: How blocks of elements are packed, if they are.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    encoding: QuantizationEncoding | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the payload; ``ValueError`` if rows are not of whole blocks."""
        if self.encoding is None:
            return math.prod(self.shape) * self.dtype.size_in_bytes
        if not self.shape:
            raise ValueError(f"a scalar cannot be stored as {self.encoding.name}")
        return math.prod(self.shape[:-1]) * self.encoding.row_bytes(self.shape[-1])

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the array that holds the payload: bytes when quantized."""
        return np.dtype(np.uint8) if self.encoding else self.dtype.to_numpy()

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape of the array that holds the payload: rows of bytes when quantized."""
        if self.encoding is None:
            return self.shape
        return (*self.shape[:-1], self.encoding.row_bytes(self.shape[-1]))

    @property
    def type_name(self) -> str:
        """Type name in listings, as safetensors and GGUF write it: ``F32``, ``BF16``, ``Q4_K``."""
        if self.encoding is not None:
            return self.encoding.name
        return TABLE[self.dtype].safetensors or self.dtype.name

    def at(self, file: Path, offset: int, unpack: Unpack | None = None) -> TensorInfo:
        """The tensor as a file holds it."""
        return TensorInfo(self.name, self.dtype, self.shape, self.encoding, file, offset, unpack)


Unpack = Callable[[SourceFile], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class TensorInfo(TensorSpec):
    """One tensor as a file's header describes it.

    Attributes:
        file: The file that holds the payload.
        offset: Bytes from the start of ``file``.
        unpack: Makes the array from what it reads of ``file`` where its elements do not simply
            follow each other from ``offset`` on: with strides, compressed, in another encoding.
    """

    file: Path = Path()
    offset: int = 0
    unpack: Unpack | None = field(default=None, compare=False, repr=False)

    @property
    def is_in_order(self) -> bool:
        """Return whether the file has the bytes of the array, one behind the other."""
        return self.unpack is None
