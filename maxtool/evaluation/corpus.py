"""The tokens of a text: from a file of text, or from a file of token ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maxtool.errors import InputError, MissingFile
from maxtool.weights.checkpoint import open_checkpoint


def read_text(path: Path) -> str:
    """The text of a file in UTF-8; its line ends stay as they are."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        what = f"the text cannot be read: {error.strerror or error}"
        raise MissingFile(what, file=path) from None
    except UnicodeDecodeError as error:
        raise InputError("the text is not UTF-8", file=path, offset=error.start) from None


def read_ids(path: Path) -> NDArray[np.int64]:
    """The token ids in a file of NumPy's: one array of integers, ``[tokens]``."""
    checkpoint = open_checkpoint(path)
    if len(checkpoint.tensors) != 1:
        what = f"token ids are one array, and this file holds {len(checkpoint.tensors)}"
        raise InputError(what, file=path)
    (name,) = checkpoint.tensors
    weight = checkpoint.read(name)
    if len(weight.shape) != 1 or not weight.dtype.is_integral() or weight.quantization_encoding:
        what = f"token ids are integers[tokens], and this is {weight.dtype.value}"
        raise InputError(f"{what}{list(weight.shape)}", file=path)
    return weight.data.astype(np.int64)
