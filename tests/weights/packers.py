"""Packers of GPTQ and AWQ, after the published layouts, bit by bit and independent of the readers.

GPTQ: AutoGPTQ's ``qlinear_cuda.py``, ``pack``. AWQ: AutoAWQ's ``gemm.py``, ``from_linear``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def pack_rows(numbers: NDArray[Any], bits: int) -> NDArray[np.int32]:
    """Pack numbers ``[n, columns]`` along ``n``: a bit string in each column, lowest bits first."""
    strings = [[(int(n) >> bit) & 1 for n in column for bit in range(bits)] for column in numbers.T]
    words = -(-len(strings[0]) // 32)
    packed = np.zeros((words, len(strings)), np.uint64)
    for column, string in enumerate(strings):
        for position, bit in enumerate(string):
            packed[position // 32, column] |= np.uint64(bit << (position % 32))
    return packed.astype(np.uint32).view(np.int32)


def gptq(
    numbers: NDArray[Any],
    zeros: NDArray[Any],
    scales: NDArray[Any],
    bits: int,
    owners: NDArray[Any] | None = None,
    *,
    less: int = 1,
) -> dict[str, NDArray[Any]]:
    """Tensors of a layer from numbers ``[inputs, outputs]``, zeros and scales of its groups."""
    stored = (zeros.astype(int) - less) % (1 << bits)
    layer = {
        "qweight": pack_rows(numbers, bits),
        "qzeros": np.ascontiguousarray(pack_rows(stored.T, bits).T),
        "scales": scales,
    }
    return layer if owners is None else layer | {"g_idx": owners.astype(np.int32)}


def awq(
    numbers: NDArray[Any], zeros: NDArray[Any], scales: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """Tensors of a layer from numbers ``[inputs, outputs]``, zeros and scales of its groups."""
    return {"qweight": _awq_words(numbers), "qzeros": _awq_words(zeros), "scales": scales}


def _awq_words(numbers: NDArray[Any]) -> NDArray[np.int32]:
    rows, columns = numbers.shape
    words = np.zeros((rows, columns // 8), np.uint32)
    for place, output in enumerate(AWQ_ORDER):
        words |= numbers[:, output::8].astype(np.uint32) << np.uint32(4 * place)
    return words.view(np.int32)
