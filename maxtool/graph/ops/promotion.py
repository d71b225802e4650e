"""Type promotion: the type that operands of different types are computed in.

One of the two, if it holds every value of the other: ``float32`` beside ``float16``, ``int32``
beside ``uint8``, ``float64`` beside ``int32``, any number beside ``bool``. Everything else is an
error: ``float16`` beside ``bfloat16``, ``int32`` beside ``uint32``, ``float32`` beside ``int32``.
The 8-bit floats are for storage and stand beside their own type only.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np

from maxtool.dtype import DType


def common(dtypes: Iterable[DType]) -> DType:
    """The type among ``dtypes`` that holds every value of the others; a ``ValueError`` if none."""
    distinct = list(dict.fromkeys(dtypes))
    widest = reduce(lambda left, right: right if holds(right, left) else left, distinct)
    if not all(holds(widest, dtype) for dtype in distinct):
        listed = ", ".join(dtype.value for dtype in distinct)
        raise ValueError(f"dtypes differ ({listed}), and none holds the others; cast one of them")
    return widest


def holds(wide: DType, narrow: DType) -> bool:
    """Return whether ``wide`` has every value of ``narrow``."""
    if wide is narrow:
        return True
    if narrow is DType.bool:
        return not _for_storage(wide)
    if wide is DType.bool or _for_storage(wide) or _for_storage(narrow):
        return False
    if wide.is_integral():
        return narrow.is_integral() and _covers(wide, narrow)
    return _represents(wide, narrow)


def _for_storage(dtype: DType) -> bool:
    return dtype.value.startswith("float8")


def _covers(wide: DType, narrow: DType) -> bool:
    ours, theirs = np.iinfo(wide.to_numpy()), np.iinfo(narrow.to_numpy())
    return bool(ours.min <= theirs.min and theirs.max <= ours.max)


def _represents(wide: DType, narrow: DType) -> bool:
    """Return whether a float type has the digits, and the range, of another type."""
    digits, largest = _digits_and_exponent(wide)
    if narrow.is_integral():
        return 8 * narrow.size_in_bytes - ("u" not in narrow.value) <= digits
    theirs, exponent = _digits_and_exponent(narrow)
    return digits >= theirs and largest >= exponent


def _digits_and_exponent(dtype: DType) -> tuple[int, int]:
    """Return the binary digits of a float type's numbers, and its largest exponent."""
    limits: Any = ml_dtypes.finfo(dtype.to_numpy())  # type: ignore[no-untyped-call]
    return limits.nmant + 1, limits.maxexp
