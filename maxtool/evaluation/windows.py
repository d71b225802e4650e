"""Texts in windows, as llama.cpp's perplexity tool cuts them.

Tokens 0 to ``n - 1`` are the first window of ``n``, the next ``n`` the second, and what is left is
not used. Models read each window alone, with the beginning-of-text token in the place of its first
token where they expect such. The first half is there to be read only: what is scored are the
``n - n // 2 - 1`` predictions of the tokens behind position ``n // 2``, each of which has at least
half of the window before it. Source: ``perplexity`` in llama.cpp's
``tools/perplexity/perplexity.cpp``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.errors import InputError, UsageError

USUAL, LEAST = 512, 8  # tokens of a window: three are scored of the shortest


@dataclass(frozen=True)
class Windows:
    """A text in windows.

    Attributes:
        ids: ``[count, length]``: what models read.
        tokens: ``[count, scored]``: the tokens that are predicted.
    """

    ids: NDArray[np.int64]
    tokens: NDArray[np.int64]

    @property
    def count(self) -> int:
        """The number of windows."""
        return len(self.ids)

    @property
    def length(self) -> int:
        """The tokens of a window."""
        return int(self.ids.shape[1])

    def scored(self, logits: NDArray[Any]) -> NDArray[Any]:
        """The rows of a window's logits, ``[length, vocabulary]``, that predict its tokens."""
        return logits[self.length // 2 : -1]


def cut(ids: NDArray[np.int64], length: int, bos: int | None, most: int | None = None) -> Windows:
    """Cut token ids, ``[tokens]``, into windows, at most so many of them.

    Args:
        ids: The text.
        length: The tokens of a window.
        bos: What each window begins with, unless it is None.
        most: The windows that are wanted; all if None.

    Raises:
        UsageError: If a window would be shorter than 8 tokens, or none is wanted.
        InputError: If the text does not fill one window.
    """
    if length < LEAST:
        raise UsageError(f"a window of {length} tokens; the shortest has {LEAST}")
    if most is not None and most < 1:
        raise UsageError(f"{most} windows")
    count = min(len(ids) // length, most or len(ids))
    if not count:
        what = f"the text has {len(ids)} tokens, and a window has {length}"
        raise InputError(what, hint="give a longer text, or a smaller --context")
    whole = ids[: count * length].reshape(count, length)
    read = whole.copy()
    if bos is not None:
        read[:, 0] = bos
    return Windows(read, whole[:, length // 2 + 1 :])
