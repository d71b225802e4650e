"""Caches that have room for a window alone compute what those with room for all positions do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maxtool.architectures import CacheLayout, build
from maxtool.architectures.entry import graph_of
from maxtool.dtype import DType
from maxtool.parity import evaluate
from tests.architectures.decoders import CONFIG, Steps, fill
from tests.effort import thinned

CONTEXT = 48
SLIDING = {"context_length": CONTEXT, "sliding_layers": (True, False, True)}
IDS = np.random.default_rng(1).integers(0, 11, (2, CONTEXT))
# Parts that a text is read in: within the window, across its end, longer than it, single tokens.
PARTS = {
    "a token a time": [1] * CONTEXT,
    "whole, then a token a time": [30, *[1] * 18],
    "all at once": [CONTEXT],
    "of any length": [3, 1, 4, 5, 9, 1, 2, 16, 1, 1, 5],
}


@pytest.mark.long
@pytest.mark.sampled
@pytest.mark.parametrize(
    ("window", "transposed", "dtype"),
    thinned(
        [
            (1, True, DType.float32),
            (5, True, DType.float16),
            (16, False, DType.bfloat16),
            (47, True, DType.float32),
        ],
        (5, True, DType.float16),
    ),
)
@pytest.mark.parametrize("chunked", [False, True])
def test_a_text_read_in_parts(
    window: int, transposed: bool, dtype: DType, *, chunked: bool
) -> None:
    config = CONFIG | SLIDING | {"sliding_window": window, "chunked_window": chunked}
    model = build("decoder", config, form=CacheLayout(dtype, transposed, slides=True))
    fill(model)
    whole = model.compile(*model.entries()[0].inputs.values())(IDS).to_numpy()
    steps = Steps(model, batch=2, decodes=True)
    bound = 1e-4 if dtype is DType.float32 else 1e-3  # what is rounded is rounded in both
    for lengths in PARTS.values():
        steps.restart()
        at = 0
        for length in lengths:
            at += length
            logits = steps(IDS[:, at - length : at])
            np.testing.assert_allclose(logits, whole[:, at - 1], rtol=bound, atol=bound)


@pytest.mark.long
@pytest.mark.sampled
@pytest.mark.parametrize("window", thinned([1, 5, 16], 5))
def test_layers_that_have_no_keys_of_their_own(window: int) -> None:
    """Keep nothing of them, and let them see what the layer sees whose keys they attend to."""
    changes = {"sliding_window": window, "kv_shared_layers": 3, "n_layers": 5}
    changes |= {"sliding_layers": (True, False, True, False, True)}
    model = build("decoder", CONFIG | SLIDING | changes, form=CacheLayout(slides=True))
    fill(model)
    assert {name.split(".")[1] for name in model.cache()} == {"0", "1"}
    whole = model.compile(*model.entries()[0].inputs.values())(IDS).to_numpy()
    steps = Steps(model, batch=2, decodes=True)
    for lengths in PARTS.values():
        steps.restart()
        at = 0
        for length in lengths:
            at += length
            logits = steps(IDS[:, at - length : at])
            np.testing.assert_allclose(logits, whole[:, at - 1], rtol=1e-4, atol=1e-4)


@pytest.mark.explored
def test_a_text_read_in_parts_with_a_cache_in_blocks() -> None:
    """Sums in another order round a number of a key to another step here and there.

    A step is 1/127 of the largest of 32, so that one number is off by 1/254 of that at most.
    """
    config = CONFIG | SLIDING | {"sliding_window": 5, "head_dim": 32}
    model = build("decoder", config, form=CacheLayout(DType.int8, slides=True))
    fill(model)
    whole = model.compile(*model.entries()[0].inputs.values())(IDS).to_numpy()
    steps = Steps(model, batch=2, decodes=True)
    for lengths in PARTS.values():
        steps.restart()
        at = 0
        for length in lengths:
            at += length
            logits = steps(IDS[:, at - length : at])
            off = np.linalg.norm(logits - whole[:, at - 1]) / np.linalg.norm(whole[:, at - 1])
            assert off < 1 / 254, (lengths, at)


@pytest.mark.long
@pytest.mark.parametrize("chunked", [False, True])
def test_going_back_by_one_position_loses_nothing(*, chunked: bool) -> None:
    config = CONFIG | SLIDING | {"sliding_window": 5, "chunked_window": chunked}
    model = build("decoder", config, form=CacheLayout(slides=True))
    fill(model)
    steps = Steps(model, batch=2, decodes=True)
    steps(IDS[:, :20])
    expected = steps(IDS[:, 20:21])
    only_chunks = Steps(model, batch=2)
    for at in range(21):
        chunk = only_chunks(IDS[:, at : at + 1])
    np.testing.assert_allclose(chunk, expected, rtol=1e-4, atol=1e-4)
    steps.position -= 1
    np.testing.assert_allclose(steps(IDS[:, 20:21]), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [DType.float32, DType.int8])
def test_the_graph_says_the_same(dtype: DType) -> None:
    """Evaluate in NumPy float64: where a graph is wrong, so is what it is compiled to."""
    config = CONFIG | SLIDING | {"sliding_window": 5, "head_dim": 32}
    sliding, plain = (
        build("decoder", config, form=CacheLayout(dtype, slides=slides)) for slides in (True, False)
    )
    results: list[Any] = []
    for model in (sliding, plain):
        fill(model)
        weights = model.state_dict()
        cache = [np.zeros([2, *map(int, kind.shape[1:])]) for kind in model.cache().values()]
        _, prefill, decode = (graph_of(model, entry) for entry in model.entries())
        at = 0
        for length in PARTS["of any length"]:
            graph = decode if length == 1 else prefill
            owned = weights | {n: w.to_numpy() for n, w in graph.owners.items()}
            arrays = [IDS[:, at : at + length], np.array([at], np.int32), *cache]
            results.append(evaluate(graph, arrays, owned)[0])
            at += length
    half = len(results) // 2
    for ours, theirs in zip(results[:half], results[half:], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_the_room_of_each_layer() -> None:
    config = CONFIG | SLIDING | {"sliding_window": 5}
    model = build("decoder", config, form=CacheLayout(slides=True))
    shapes = {name: tuple(map(str, kind.shape)) for name, kind in model.cache().items()}
    assert shapes["cache.0.key"] == ("batch", "2", "4", "5")
    assert shapes["cache.0.value"] == ("batch", "2", "5", "4")
    assert shapes["cache.1.value"] == ("batch", "2", "48", "4")
    assert model.facts["kept_positions"] == 5
    for context, slides in ((5, True), (48, False)):
        other = build("decoder", config, context=context, form=CacheLayout(slides=slides))
        assert "kept_positions" not in other.facts
        assert {kind.shape[2] for name, kind in other.cache().items() if "value" in name} == {
            context
        }
