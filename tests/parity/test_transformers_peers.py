"""Graphs in float64 beside transformers, on random configurations of every family."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maxtool.weights.checkpoint import open_checkpoint
from tests.data.random_configs import FAMILIES, LONGEST, configurations, is_supported
from tests.effort import sampled
from tests.parity.measure import error
from tests.parity.peers import cached, forward, load, saved, shaken, torch
from tests.parity.traced import TracedModel

__all__ = ["torch"]  # the fixture

pytestmark = [pytest.mark.peers, pytest.mark.slow]

ALLOWED = 5e-6
"""Rotary tables are float32 and may differ in the last bit; the rest is float64 in both."""
AMPLIFIED = 10
"""Times what the last bit of each weight changes: some models of a few numbers amplify it."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model_type", sampled(FAMILIES, "lfm2", share=5))
@settings(max_examples=10, suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_the_same_as_transformers(torch: Any, model_type: str, data: st.DataObject) -> None:
    config = data.draw(configurations(model_type).filter(is_supported), label="configuration")
    older = data.draw(st.booleans(), label="in the older spelling")
    torch.manual_seed(data.draw(st.integers(0, 99), label="seed"))
    length = data.draw(st.integers(3, LONGEST), label="tokens")
    first = data.draw(st.integers(1, length - 1), label="tokens of the first call")
    with saved(torch, model_type, config, older=older) as folder:
        found = TracedModel(open_checkpoint(folder))
        ids = np.random.default_rng(length).integers(0, config["vocab_size"], (2, length))
        expected = forward(torch, load(torch, folder), ids)
        actual = found.forward(ids)
        allowed = ALLOWED
        if error(actual, expected) > ALLOWED:
            allowed += AMPLIFIED * error(TracedModel(shaken(folder)).forward(ids), actual)
        assert error(actual, expected) < allowed
        starts = [0, *range(first, length)]
        expected = cached(torch, load(torch, folder), ids, starts)
        actual = found.cached(ids, starts)
        if error(actual, expected) > allowed:
            allowed += AMPLIFIED * error(TracedModel(shaken(folder)).cached(ids, starts), actual)
        assert error(actual, expected) < allowed
