"""Compiled decoders beside transformers, on random configurations of every family.

Each is compiled with ``--check``, from the folder that transformers saved or from the GGUF file
that it is converted to, so that a configuration which recipe and reference read alike, but not as
transformers does, fails too.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from maxtool import artifact
from maxtool.conversion import Request, convert, prepare
from maxtool.errors import ConfigurationError, ParityFailed
from maxtool.runtime import loader
from tests.artifact.measure import BOUND, Array, error
from tests.data.random_configs import FAMILIES, GRANTED, LONGEST, configurations, is_supported
from tests.data.random_families import WITHOUT_GGUF
from tests.data.random_layer_input_families import own_tokens
from tests.effort import sampled
from tests.parity.peers import cached, forward, load, saved, single, torch

__all__ = ["torch"]  # the fixture

pytestmark = [pytest.mark.peers, pytest.mark.slow]

SOURCES = [
    (family, dialect)
    for family in FAMILIES
    for dialect in ("hf", "gguf")
    if dialect == "hf" or family not in WITHOUT_GGUF
]
# What is refused: values that GGUF cannot say.
REFUSED = ("has no spelling in gguf",)
# Norms of so few numbers magnify what float32 rounds in some texts, of which the check's is one.
NARROW = 3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("model_type", "dialect"), sampled(SOURCES, ("lfm2", "gguf"), share=10))
@settings(max_examples=2, suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_the_same_as_transformers(
    torch: Any, model_type: str, dialect: str, data: st.DataObject
) -> None:
    config = data.draw(configurations(model_type).filter(is_supported), label="configuration")
    if dialect == "gguf":
        config = config | GRANTED[model_type]
        config.pop("no_rope_layers", None)
    older = data.draw(st.booleans(), label="in the older spelling")
    length = data.draw(st.integers(3, LONGEST), label="tokens")
    first = data.draw(st.integers(1, length - 1), label="tokens of the first call")
    torch.manual_seed(data.draw(st.integers(0, 99), label="seed"))
    known = own_tokens(config) if dialect == "gguf" else config["vocab_size"]
    ids = np.random.default_rng(length).integers(0, known, (2, length))
    with (
        saved(torch, model_type, config, older=older) as folder,
        tempfile.TemporaryDirectory() as scratch,
    ):
        expected = forward(torch, load(torch, folder), ids)
        assume(farthest(single(torch, folder, ids), expected) < BOUND)
        compiled = loader.load(made(folder, Path(scratch), dialect))
        # Dynamic scaling stretches a context by its factor; transformers knows no end.
        assume(length <= (compiled.manifest.context or length))
        assert error(compiled(input_ids=ids)["logits"], expected) < BOUND
        starts = [0, *range(first, length)]
        expected = cached(torch, load(torch, folder), ids, starts)
        assert error(in_turn(compiled, ids, starts), expected) < BOUND


def farthest(actual: Array, expected: Array) -> float:
    """The relative error of the position that is furthest off.

    Norms of a few numbers magnify what float32 rounds, in transformers as here: where its own
    logits in float32 are that far off, nothing could be told from ours.
    """
    sizes = [np.linalg.norm(array, axis=-1) for array in (actual - expected, expected)]
    return float(np.max(sizes[0] / sizes[1]))


def made(folder: Path, scratch: Path, dialect: str) -> Path:
    """The artifact, checked; the example is passed over if it is refused as it should be."""
    source, output = folder, scratch / "artifact"
    try:
        if dialect == "gguf":
            source = scratch / "model.gguf"
            convert(prepare(Request(folder, source)))
        planned = artifact.prepare(artifact.Request(source, output, check=True))
    except ConfigurationError as refusal:
        assume(not any(reason in str(refusal) for reason in REFUSED))
        raise
    try:
        artifact.make(planned)
    except ParityFailed:
        assume(planned.plan.config["hidden_size"] > NARROW)
        raise
    return output


def in_turn(model: loader.Model, ids: Array, starts: list[int]) -> Array:
    """Logits after each call with a cache: ``prefill``, then ``decode``."""
    state = model.new_state(batch=len(ids))
    logits = []
    for start, stop in zip(starts, [*starts[1:], ids.shape[1]], strict=True):
        inputs = {"input_ids": ids[:, start:stop], "position": np.array([start], np.int32)}
        logits.append(model.run("decode" if start else "prefill", inputs, state)["logits"])
    return np.stack(logits, axis=1)
