"""Storage types at run time: elements of types that TVM or DLPack lack travel as their bits."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from maxtool.compiler.kernels import element_types
from maxtool.dtype import DType


def stored(dtype: DType) -> str:
    """The element type that a value of ``dtype`` has at run time."""
    return element_types.storage_type(dtype.value)


def bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """``array`` contiguous, as its elements are carried."""
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    carried = _carried(array.dtype)
    return array if carried is array.dtype else array.view(carried)


@cache
def _carried(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(stored(DType.from_numpy(dtype)))
