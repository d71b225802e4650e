"""How elements are carried at run time: those of types that TVM or DLPack lack as their bits."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from maxtool.compiler.kernels import elements
from maxtool.dtype import DType


def stored(dtype: DType) -> str:
    """The element type that a value of ``dtype`` has at run time."""
    return elements.stored(dtype.value)


def bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """``array`` contiguous, as its elements are carried."""
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    kind = _carried(array.dtype)
    return array if kind is array.dtype else array.view(kind)


@cache
def _carried(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(stored(DType.from_numpy(dtype)))
