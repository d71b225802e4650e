"""Scaling of queries by their position, for texts longer than those of training.

``1 + temperature * log(1 + floor((position + offset) / context))``, as in Llama 4 (transformers,
modeling_llama4.py and modeling_ministral3.py).
"""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.graph import DimLike, Tensor, ops


def query_scale(
    input_ids: Tensor, position: Tensor, temperature: float, context: int, offset: int = 0
) -> Tensor:
    """The factor of queries, ``[batch or 1, seq, 1, 1]``, of tokens ``[batch, seq]``.

    Args:
        input_ids: The tokens.
        position: That of the first token, int32 ``[1]``; or of one token in each row, ``[batch]``.
        temperature: How fast the factor grows.
        context: Positions that have one factor.
        offset: What is added to positions before.
    """
    sizes: list[DimLike]
    if position.shape == [1]:
        length = input_ids.shape[1]
        position = position + ops.range(0, length, dtype=DType.int32, device=position.device)
        sizes = [1, length, 1, 1]
    else:
        sizes = [*position.shape, 1, 1, 1]
    position = position + offset if offset else position
    whole = (position // context).cast(DType.float32)
    return (ops.log1p(whole) * temperature + 1.0).reshape(sizes)
