"""Compiled quantizers: what has some registers itself here, and NumPy does what they leave.

The codecs define the bytes, and compiled quantizers write the same. To load a compiler takes a
second and 200 MB, so they are used where it is asked for, and where they save more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maxtool.quantization.block import UInt8
from maxtool.quantization.encoding import QuantizationEncoding
from maxtool.quantization.importance import BlockWeights

# Writes the bytes of blocks, ``[blocks, elements]`` to ``[blocks, bytes]``, and returns which
# blocks it left to the codec: some with NaN or with infinity, or whose scales are not finite. It
# is given weights if it was asked for with importance.
BlockQuantizer: TypeAlias = Callable[[NDArray[Any], UInt8, BlockWeights | None], list[slice]]
# Gives the quantizer for an encoding and a type of elements, without or with importance, if there
# is one.
Finder: TypeAlias = Callable[[QuantizationEncoding, np.dtype[Any], bool], BlockQuantizer | None]
Warn: TypeAlias = Callable[[str], None]

# The module that registers what finds quantizers when it is imported.
PROVIDER = "maxtool.compiler.quantizers.compiled_quantizers"
# The encodings that it has quantizers for.
COMPILED = frozenset(
    QuantizationEncoding[name]
    for name in (
        *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
        *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
        *("IQ4_NL", "IQ4_XS"),
    )
)


@dataclass(frozen=True, eq=False)
class _Wish:
    """Encodings that somebody wants to be quantized by compiled code, and whom to tell of it."""

    encodings: set[QuantizationEncoding]
    warn: Warn


_registered: list[Finder] = []
_wishes: list[_Wish] = []
# Threads that ask at the same time wait for one to have loaded and compiled.
_one_finds = Lock()


def register(finder: Finder) -> None:
    """Let arrays be quantized by what ``finder`` gives."""
    _registered.append(finder)


@contextmanager
def compiled_for(
    encodings: Iterable[QuantizationEncoding], warn: Warn = lambda _: None
) -> Iterator[None]:
    """Let arrays be quantized to these encodings by compiled code within.

    ``warn`` is told why an encoding is left to NumPy all the same.
    """
    wish = _Wish(set(encodings) & COMPILED, warn)
    _wishes.append(wish)
    try:
        yield
    finally:
        _wishes.remove(wish)


def find_quantizer(
    encoding: QuantizationEncoding, dtype: np.dtype[Any], *, weighed: bool = False
) -> BlockQuantizer | None:
    """Return the compiled quantizer to use now; None if the codec is to do all.

    ``weighed`` is whether errors are weighed by importance.
    """
    with _one_finds:
        asking = [wish for wish in _wishes if encoding in wish.encodings]
        if not asking:
            return None
        try:
            if not _registered:
                import_module(PROVIDER)
            return _registered[-1](encoding, dtype, weighed)
        except Exception as error:  # whatever a compiler that is broken or missing raises
            reason = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            for wish in asking:
                wish.encodings.discard(encoding)
    for wish in asking:
        wish.warn(
            f"{encoding.name} is quantized by NumPy, several times slower, as no quantizer "
            f"could be compiled: {reason[0]:.200}"
        )
    return None
