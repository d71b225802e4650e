"""Compiled quantizers for matrices that are quantized as they are read, where there are many.

They are loaded or compiled before anything else is compiled: that happens in another thread than
the one in which weights are read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from maxtool.artifact.matrix_types import MatrixType, is_quantized, matrices
from maxtool.dtype import DType
from maxtool.quantization import accelerated
from maxtool.quantization.acceleration import find_quantizer
from maxtool.quantization.codec import Work
from maxtool.recipe import Binding, Plan


@contextmanager
def quick_quantizing(planned: Plan, types: Mapping[str, MatrixType]) -> Iterator[None]:
    """Let matrices be quantized by compiled code within, if there is enough to do."""
    elements: Counter[Work] = Counter()
    sources: dict[Work, set[DType]] = {}
    for binding in matrices(planned):
        if (work := _work(binding, types.get(binding.parameter))) is not None:
            elements[work] += math.prod(binding.shape)
            source = DType.float32 if is_quantized(binding) else binding.dtype
            sources.setdefault(work, set()).add(source)
    with accelerated(elements):
        for (encoding, weighed), dtypes in sources.items():
            for dtype in dtypes:
                find_quantizer(encoding, dtype.to_numpy(), weighed=weighed)
        yield


def _work(binding: Binding, chosen: MatrixType | None) -> Work | None:
    """Return how a matrix is quantized; None if it is not, or has its encoding in the source."""
    if chosen is None or chosen.encoding is None or chosen.encoding is binding.encoding:
        return None
    return chosen.encoding, chosen.importance is not None
