"""Compiled quantizers: what has some registers itself here, and NumPy does what they leave.

The codecs define the bytes, and compiled quantizers write the same. To load a compiler takes a
second and 200 MB, so they are used where it is asked for, and where they save more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maxtool.quantization.block import UInt8
from maxtool.quantization.encoding import QuantizationEncoding

# Writes the bytes of blocks, ``[blocks, elements]`` to ``[blocks, bytes]``, and returns which
# blocks it left to the codec: some with NaN or with infinity, or whose scales are not finite.
BlockQuantizer: TypeAlias = Callable[[NDArray[Any], UInt8], list[slice]]
# Gives the quantizer for an encoding and a type of elements, if there is one.
Finder: TypeAlias = Callable[[QuantizationEncoding, np.dtype[Any]], BlockQuantizer | None]

# The module that registers what finds quantizers when it is imported.
PROVIDER = "maxtool.compiler.quantizers.compiled_quantizers"
_registered: list[Finder] = []
_wanted: set[QuantizationEncoding] = set()


def register(finder: Finder) -> None:
    """Let arrays be quantized by what ``finder`` gives."""
    _registered.append(finder)


@contextmanager
def compiled_for(encodings: Iterable[QuantizationEncoding]) -> Iterator[None]:
    """Let arrays be quantized to these encodings by compiled code within."""
    before = set(_wanted)
    _wanted.update(encodings)
    try:
        yield
    finally:
        _wanted.intersection_update(before)


def find_quantizer(encoding: QuantizationEncoding, dtype: np.dtype[Any]) -> BlockQuantizer | None:
    """Return the compiled quantizer to use now; None if the codec is to do all."""
    if encoding not in _wanted:
        return None
    try:
        if not _registered:
            import_module(PROVIDER)
        return _registered[-1](encoding, dtype)
    except Exception:  # whatever a compiler that is broken or missing raises
        _wanted.discard(encoding)
        return None
