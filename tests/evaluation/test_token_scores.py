"""Scores of tokens, beside sums in plain Python, of exact fractions where that is possible."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from maxtool.evaluation import token_scores
from maxtool.evaluation.model_summary import summarize
from maxtool.evaluation.token_scores import TokenScores, joined, log_softmax, score

LOGITS = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 7), st.integers(2, 40)),
    elements=st.floats(-80, 80, width=32),
)


def expected(row: list[float]) -> list[float]:
    """Logarithms of probabilities, summed without rounding."""
    high = max(row)
    total = math.fsum(math.exp(value - high) for value in row)
    return [value - high - math.log(total) for value in row]


@given(LOGITS, st.data())
@settings(max_examples=60)
def test_scores_are_those_of_plain_python(
    logits: np.ndarray[Any, Any], data: st.DataObject
) -> None:
    shape = arrays.arrays(np.float32, logits.shape, elements=st.floats(-80, 80, width=32))
    reference = data.draw(shape)
    tokens = np.arange(len(logits), dtype=np.int64) % logits.shape[1]
    actual = score(logits, reference, tokens)
    for row, token in enumerate(tokens):
        q, p = expected(logits[row].tolist()), expected(reference[row].tolist())
        divergence = math.fsum(math.exp(a) * (a - b) for a, b in zip(p, q, strict=True))
        assert actual.surprisal[row] == pytest.approx(-q[token], rel=1e-12, abs=1e-12)
        assert actual.divergence[row] == pytest.approx(divergence, rel=1e-9, abs=1e-12)
        assert actual.same_top[row] == (logits[row].argmax() == reference[row].argmax())


@given(LOGITS, st.integers(1, 400))
@settings(max_examples=40)
def test_parts_change_nothing(logits: np.ndarray[Any, Any], size: int) -> None:
    tokens = np.zeros(len(logits), np.int64)
    reference = logits[:, ::-1]
    whole = score(logits, reference, tokens)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_scores, "PART_BYTES", size)
        parts = score(logits, reference, tokens)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_model_does_not_diverge_from_itself() -> None:
    logits = np.random.default_rng(0).normal(size=(9, 77)).astype(np.float32)
    scores = score(logits, logits, np.arange(9))
    assert not scores.divergence.any()
    assert scores.same_top.all()


@pytest.mark.parametrize("largest", [1e4, 3e38])
def test_no_logit_is_too_large(largest: float) -> None:
    logits = np.array([[largest, 0, -largest], [0, 0, 0]], np.float32)
    result = log_softmax(logits)
    first = np.float64(np.float32(largest))
    np.testing.assert_allclose(result[0], [0, -first, -2 * first])
    np.testing.assert_allclose(result[1], -math.log(3))


def test_shifted_logits_mean_the_same() -> None:
    logits = np.random.default_rng(1).integers(-9, 9, (5, 12)).astype(np.float32)
    scores = score(logits + np.float32(1024), logits, np.zeros(5, np.int64))
    np.testing.assert_allclose(scores.divergence, 0, atol=1e-15)


def test_a_summary_is_what_its_formulas_say() -> None:
    draw = np.random.default_rng(2)
    surprisals, others = draw.exponential(size=(2, 1001))
    tops = draw.random(1001) < 0.9
    scores = TokenScores(surprisals, others, tops)
    reference = TokenScores(others, np.zeros(1001), np.ones(1001, np.bool_))
    summary = summarize(scores, reference)
    # As llama.cpp writes them.
    mean, square = surprisals.sum() / 1001, (surprisals**2).sum() / 1001
    error = math.exp(mean) * math.sqrt((square - mean**2) / 1000)
    assert summary.perplexity == pytest.approx((math.exp(mean), error))
    base, base_square = others.sum() / 1001, (others**2).sum() / 1001
    covariance = ((surprisals * others).sum() / 1001 - mean * base) / 1000
    variance = (square - mean**2) / 1000 + (base_square - base**2) / 1000 - 2 * covariance
    ratio = math.exp(mean - base)
    assert summary.ratio == pytest.approx((ratio, ratio * math.sqrt(variance)))
    share = tops.sum() / 1001
    assert summary.same_top == pytest.approx((share, math.sqrt(share * (1 - share) / 1000)))
    assert summary.divergence.value == pytest.approx(base)
    assert summary.percentiles[50.0] == np.sort(others)[500]
    assert summary.percentiles[99.0] == np.sort(others)[990]
    assert summary.largest == others.max()


def test_a_model_may_be_wrong_beyond_measure() -> None:
    scores = TokenScores(np.full(3, 1e5), np.full(3, 1e5), np.zeros(3, np.bool_))
    summary = summarize(scores, joined([scores]))
    assert summary.perplexity.value == math.inf
    assert summary.ratio == (1.0, 0.0)
