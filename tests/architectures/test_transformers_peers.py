"""The decoder beside transformers, on random configurations of every family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from maxtool.architectures import Decoder, DecoderConfig
from maxtool.architectures.decoder_checks import problems
from tests.architectures import families
from tests.architectures.decoders import Steps
from tests.data.random_configs import FAMILIES, LONGEST, configurations
from tests.parity import peers
from tests.parity.measure import error

pytestmark = [pytest.mark.peers, pytest.mark.slow, pytest.mark.usefixtures("unoptimised")]

torch = peers.torch


def decoder(folder: Path) -> Decoder:
    """The model in a folder of transformers; a rotary part of odd width is not tried."""
    options, weights = families.read(folder)
    assume(options.get("rotary_dim", 2) % 2 == 0)
    found = DecoderConfig(**options)
    assert problems(found) == []
    model = Decoder(found, context=max(LONGEST, found.context_length))
    model.load_state_dict(weights)
    return model


def allowed(torch: Any, folder: Path, ids: np.ndarray[Any, Any], expected: Any) -> float:
    """1e-5, or what transformers itself is off by in float32, where a model loses more digits."""
    with torch.no_grad():
        single = peers.load(torch, folder).float()
        found = single(input_ids=torch.from_numpy(ids), use_cache=False).logits.numpy()
    return max(1e-5, 3 * error(found, expected))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model_type", FAMILIES)
@settings(max_examples=4, suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_the_same_as_transformers(torch: Any, model_type: str, data: st.DataObject) -> None:
    config = data.draw(configurations(model_type), label="configuration")
    torch.manual_seed(data.draw(st.integers(0, 99), label="seed"))
    length = data.draw(st.integers(3, LONGEST), label="tokens")
    first = data.draw(st.integers(1, length - 1), label="tokens of the first call")
    with peers.saved(torch, model_type, config, older=False) as folder:
        model = decoder(folder)
        ids = np.random.default_rng(length).integers(0, config["vocab_size"], (2, length))
        expected = peers.forward(torch, peers.load(torch, folder), ids)
        kinds = model.entries()[0].inputs.values()
        found = model.compile(*kinds)(ids).to_numpy()
        bound = allowed(torch, folder, ids, expected)
        assert error(found, expected) < bound
        starts = [0, *range(first, length)]
        expected = peers.cached(torch, peers.load(torch, folder), ids, starts)
        steps = Steps(model, batch=2)
        parts = zip(starts, [*starts[1:], length], strict=True)
        found = np.stack([steps(ids[:, start:stop]) for start, stop in parts], axis=1)
        assert error(found, expected) < bound
