"""One vector for a text, made of its tokens' vectors as sentence-transformers makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from maxtool.architectures.dense_layers import DenseLayers
from maxtool.architectures.token_masks import factors
from maxtool.graph import Tensor, ops

# Where nothing is to be divided by: sentence-transformers' and torch's own least divisors.
LEAST_COUNT, LEAST_LENGTH = 1e-9, 1e-12
# What hides a token's vector from the largest of all.
HIDDEN = 1e9


def mean(x: Tensor, mask: Tensor) -> Tensor:
    """The mean ``[batch, 1, hidden]`` of the tokens ``[batch, seq, hidden]`` that are there.

    The mask, ``[batch, seq, 1]``, is 1 for a token and 0 for padding.
    """
    return ops.sum(x * mask, axis=1) / ops.maximum(ops.sum(mask, axis=1), LEAST_COUNT)


def largest(x: Tensor, mask: Tensor) -> Tensor:
    """The largest value in each column of the tokens that are there; shapes as :func:`mean`."""
    return ops.max(x + (mask - 1.0) * HIDDEN, axis=1)


def last(x: Tensor, mask: Tensor) -> Tensor:
    """The last token that is there; shapes as :func:`mean`."""
    counted = ops.cumsum(mask, 1)
    found = ops.equal(counted, ops.sum(mask, axis=1)).cast(x.dtype) * mask
    return ops.sum(x * found, axis=1)


def first(x: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG001 - the signature of all
    """The first token; shapes as :func:`mean`."""
    batch, _, hidden = x.shape
    return x[:, 0].reshape([batch, 1, hidden])


POOLINGS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": mean,
    "cls": first,
    "max": largest,
    "last": last,
}


def pooled(
    pooling: str,
    x: Tensor,
    attention_mask: Tensor,
    *,
    normalize: bool,
    dense: DenseLayers | None = None,
) -> Tensor:
    """One vector ``[batch, features]`` for each text, scaled to length 1 if that is asked for.

    It is as wide as those of tokens, or as ``dense`` makes it.
    """
    mask = factors(attention_mask)
    vector = POOLINGS[pooling](x, mask)
    vector = vector if dense is None else dense(vector)
    scaled = of_length_1(vector) if normalize else vector
    batch, _, width = scaled.shape
    return scaled.reshape([batch, width])


def of_length_1(x: Tensor) -> Tensor:
    """Vectors ``[..., hidden]`` scaled to length 1."""
    length = ops.sqrt(ops.sum(x * x, -1))
    return x / ops.maximum(length, LEAST_LENGTH)
