"""Attention with linear biases (ALiBi, Press et al. 2021), as further elements of each head.

The score of a key grows with its position, by a slope of the head's own. So heads of queries get
the slope, and those of keys the position, as elements of their own, whose product is the bias: any
kernel computes it. How far before the query a key stands does not matter: what is the same for all
keys of a query drops out of the softmax. A position is in two parts, each of which is exact in the
types of 16 bits that a cache may have.
"""

from __future__ import annotations

from collections.abc import Sequence

from maxtool.dtype import DType
from maxtool.graph import DimLike, Tensor, ops

EXTRA = 2
"""Elements of a head besides its own."""
STEP = 256
MOST = STEP * STEP
"""Positions that the two parts tell apart."""


def slopes(heads: int) -> list[float]:
    """The slope of each head, a power of two: down to ``2 ** -8`` for a power of two of heads.

    Heads beyond that many have the slopes between those of the first.
    """
    near = 1 << (heads.bit_length() - 1)
    first = [2 ** (-8 * head / near) for head in range(1, near + 1)]
    between = [2 ** (-4 * (2 * head + 1) / near) for head in range(heads - near)]
    return first + between


def biased(
    heads: tuple[Tensor, Tensor, Tensor], position: Tensor, per_head: Sequence[float], scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values ``[batch, seq, heads, dim]`` with the elements besides.

    Args:
        heads: Queries, keys and values.
        position: That of the first token, int32 ``[1]``; or of one token in each row, ``[batch]``.
        per_head: The slopes.
        scale: What scores are multiplied by.
    """
    query, key, value = heads
    parts = [part for slope in per_head for part in (slope * STEP / scale, slope / scale)]
    device = query.device
    factors = Tensor(parts, DType.float32, device).reshape([1, 1, len(per_head), EXTRA])
    zeros = Tensor.full([1, 1, 1, EXTRA], 0.0, dtype=DType.float32, device=device)
    further = (factors, _positions(key, position), zeros)
    query, key, value = (
        ops.concat([own, ops.broadcast_to(more, [*own.shape[:3], EXTRA])], 3)
        for own, more in zip((query, key, value), further, strict=True)
    )
    return query, key, value


def _positions(key: Tensor, position: Tensor) -> Tensor:
    """The two parts of each token's position, ``[batch or 1, seq, 1, 2]``."""
    sizes: list[DimLike]
    if position.shape == [1]:
        length = key.shape[1]
        position = position + ops.range(0, length, dtype=DType.int32, device=position.device)
        sizes = [1, length, 1, 1]
    else:
        sizes = [*position.shape, 1, 1, 1]
    parts = (position // STEP, position % STEP)
    return ops.concat([part.cast(DType.float32).reshape(sizes) for part in parts], 3)
