"""Tests of which only some run: how parameters are chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.effort import sampled, thinned


def running(parameters: list[Any], mark: str) -> list[Any]:
    """Return the parameters without a mark."""
    return [
        one
        for one in parameters
        if not any(each.name == mark for each in getattr(one, "marks", ()))
    ]


def test_every_third_is_in_a_sample_beside_those_that_are_kept() -> None:
    chosen = sampled("abcdefgh", "b", "h")
    assert len(chosen) == 8
    assert running(chosen, "explored") == ["a", "b", "e", "h"]
    assert running(sampled("abcd", share=2), "explored") == ["a", "c"]


def test_what_is_not_kept_is_slow() -> None:
    assert running(thinned([(1, 2), (3, 4)], (3, 4)), "slow") == [(3, 4)]


@pytest.mark.parametrize("choose", [sampled, thinned])
def test_what_is_kept_is_among_the_parameters(choose: Callable[..., list[Any]]) -> None:
    with pytest.raises(ValueError, match=r"not among the parameters: \['z'\]"):
        choose("ab", "z")
