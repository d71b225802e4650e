"""How elements are carried at run time: those of types that TVM or DLPack lack as their bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from maxtool.compiler.kernels import elements
from maxtool.dtype import DType


def stored(dtype: DType) -> str:
    """The element type that a value of ``dtype`` has at run time."""
    return elements.stored(dtype.value)


def bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """``array`` contiguous, as its elements are carried."""
    plain = np.ascontiguousarray(array).reshape(array.shape)  # which keeps rank 0
    return plain.view(np.dtype(stored(DType.from_numpy(plain.dtype))))
