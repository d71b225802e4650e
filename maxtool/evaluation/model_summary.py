"""Means and percentiles of the scores of all tokens, with standard errors.

Formulas and percentiles are those of llama.cpp's ``tools/perplexity/perplexity.cpp``: its figures
and these can be compared. It stores the reference's probabilities in 16 bits, though, and leaves
those below ``exp(-16)`` out of the divergence; here nothing is rounded or left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxtool.evaluation.token_scores import TokenScores

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)


class Estimate(NamedTuple):
    """A mean, and its standard error: the deviation of the scores by the root of their number."""

    value: float
    error: float

    def exp(self) -> Estimate:
        """Return the exponential, its error by first-order propagation."""
        value = float(np.exp(self.value))
        return Estimate(value, value * self.error)


@dataclass(frozen=True)
class Summary:
    """Figures of a model on a text, beside a reference.

    Attributes:
        perplexity: ``exp`` of the mean surprisal of a token.
        ratio: Perplexity by that of the reference. Both have read the same tokens, so its error is
            that of the differences, and much smaller than that of either.
        divergence: Mean Kullback-Leibler divergence from the reference, in nats a token.
        percentiles: Of the tokens' divergences.
        largest: The largest divergence of a token.
        same_top: Share of tokens for which both think the same one likeliest.
    """

    perplexity: Estimate
    ratio: Estimate
    divergence: Estimate
    percentiles: dict[float, float]
    largest: float
    same_top: Estimate


def summarize(scores: TokenScores, reference: TokenScores) -> Summary:
    """Summarize the scores of two or more tokens, which those of the reference go with."""
    with np.errstate(over="ignore"):  # a model may be wrong beyond all measure
        return Summary(
            perplexity=_mean(scores.surprisal).exp(),
            ratio=_mean(scores.surprisal - reference.surprisal).exp(),
            divergence=_mean(scores.divergence),
            percentiles=_percentiles(scores.divergence),
            largest=float(scores.divergence.max()),
            same_top=_mean(scores.same_top.astype(np.float64)),
        )


def _mean(values: NDArray[np.float64]) -> Estimate:
    """The mean; ``sqrt((mean of squares - square of mean) / (n - 1))``."""
    return Estimate(float(values.mean()), float(values.std(ddof=1) / np.sqrt(values.size)))


def _percentiles(values: NDArray[Any]) -> dict[float, float]:
    """Percentiles, between two values in proportion."""
    results = map(float, np.percentile(values, PERCENTILES))
    return dict(zip(PERCENTILES, results, strict=True))
