"""Scores of predicted tokens: surprisal, divergence from a reference, the same first choice.

Everything is computed in float64, from the logits in parts, whatever the size of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# In float64, of the logits that are looked at together.
PART_BYTES = 16 << 20


class TokenScores(NamedTuple):
    """Scores of predicted tokens, each ``[tokens]``.

    Attributes:
        surprisal: ``-log q(token)`` in nats, where ``q`` is what the model expects.
        divergence: ``sum over v of p(v) (log p(v) - log q(v))`` in nats, the Kullback-Leibler
            divergence of ``q`` from the reference's ``p``.
        same_top: Whether the likeliest token is that of the reference.
    """

    surprisal: NDArray[np.float64]
    divergence: NDArray[np.float64]
    same_top: NDArray[np.bool_]


def score(logits: NDArray[Any], reference: NDArray[Any], tokens: NDArray[np.int64]) -> TokenScores:
    """Score what a model expects in each row.

    Args:
        logits: float ``[tokens, vocabulary]``, of the model.
        reference: The same of the reference.
        tokens: The token that follows in each row.
    """
    parts = list(_parts(*logits.shape))
    return joined([_score(logits[part], reference[part], tokens[part]) for part in parts])


def joined(scores: Sequence[TokenScores]) -> TokenScores:
    """The scores of several texts, one after the other."""
    return TokenScores(*(np.concatenate(column) for column in zip(*scores, strict=True)))


def log_softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Logarithms of the softmax of each row, float64, for logits of any size."""
    result = logits.astype(np.float64)
    result -= result.max(axis=1, keepdims=True)
    result -= np.log(np.exp(result).sum(axis=1, keepdims=True))
    return result


def _parts(rows: int, vocabulary: int) -> Iterator[slice]:
    step = max(1, PART_BYTES // (8 * vocabulary))
    return (slice(start, start + step) for start in range(0, rows, step))


def _score(logits: NDArray[Any], reference: NDArray[Any], tokens: NDArray[np.int64]) -> TokenScores:
    expected, wanted = log_softmax(logits), log_softmax(reference)
    surprisal = -np.take_along_axis(expected, tokens[:, np.newaxis], axis=1)[:, 0]
    divergence = np.sum(np.exp(wanted) * (wanted - expected), axis=1)
    same_top = logits.argmax(axis=1) == reference.argmax(axis=1)
    return TokenScores(surprisal, divergence, same_top)
