"""Every family of decoders through GGUF and back, on random configurations.

All three are computed in float64 from the graphs that the recipe makes of them.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from maxtool.conversion import Request, convert, prepare
from maxtool.errors import ConfigurationError
from tests.data.older_configs import published
from tests.data.random_configs import (
    FAMILIES,
    GRANTED,
    LONGEST,
    configurations,
    is_supported,
)
from tests.data.random_families import BY_TENSORS, WITHOUT_GGUF, type_of
from tests.data.random_layer_input_families import own_tokens
from tests.effort import sampled
from tests.parity import folders
from tests.parity.measure import error, logits

# The recipe has to be known before there are tensors.
CONVERTED = sorted(FAMILIES.keys() - {*WITHOUT_GGUF, *BY_TENSORS})
NEW = ("gemma4_text",)  # of which there is no older spelling
BOUND = 1e-5
"""Llama 3's frequencies are divided once more in GGUF, which rounds them differently."""


@pytest.mark.slow
@pytest.mark.parametrize("model_type", sampled(CONVERTED, share=5))
@settings(max_examples=10, suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_there_and_back(
    model_type: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    drawn = data.draw(configurations(model_type).filter(is_supported), label="configuration")
    config = {"model_type": type_of(model_type)} | drawn | GRANTED[model_type]
    config.pop("no_rope_layers", None)
    if model_type not in NEW and data.draw(st.booleans(), label="in the older spelling"):
        config = published(config)
    tmp_path = tmp_path_factory.mktemp("family")
    folders.write(tmp_path / "folder", config, data.draw(st.integers(0, 99), label="seed"))
    try:
        convert(prepare(Request(tmp_path / "folder", tmp_path / "model.gguf")))
    except ConfigurationError as refusal:
        assume("has no spelling in gguf" not in str(refusal))
        raise
    convert(prepare(Request(tmp_path / "model.gguf", tmp_path / "back")))
    ids = np.random.default_rng(0).integers(0, own_tokens(config), (1, LONGEST))
    expected = logits(tmp_path / "folder", ids)
    assert error(logits(tmp_path / "model.gguf", ids), expected) < BOUND
    assert error(logits(tmp_path / "back", ids), expected) < BOUND
