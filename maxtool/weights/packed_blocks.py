"""Blocks of quantized matrices that lie in artifacts in the order that kernels want."""

from __future__ import annotations

from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from maxtool.quantization.encoding import QuantizationEncoding
from maxtool.weights.source_file import SourceFile

# The module that knows the order; it lies above, and is imported when some are read.
PROVIDER = "maxtool.compiler.quantized_packing"


def read_blocks(
    encoding: QuantizationEncoding,
    shape: tuple[int, ...],
    layout: tuple[int, ...],
    offset: int,
    file: SourceFile,
) -> NDArray[np.uint8]:
    """The blocks of a matrix, or one after the other those of all experts.

    ``shape`` is the matrix's, ``layout`` that of its bytes in the file from ``offset`` on. The
    result is ``[..., n, bytes of a row]``.
    """
    unpack = import_module(PROVIDER).unpack_quantized
    stored = file.array(offset, int(np.prod(layout))).reshape(-1, *layout[-3:])
    matrices = [unpack(matrix, encoding, shape[-2]) for matrix in stored]
    return np.stack(matrices).reshape(*shape[:-1], -1)
