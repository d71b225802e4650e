"""Layers that keep a state of fixed size in the place of keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maxtool.architectures import CacheLayout, Decoder, build, graph_of
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.parity import evaluate
from tests.architectures.decoders import CONFIG, Steps, fill
from tests.architectures.oracle import Oracle

CONVOLVED: dict[str, Any] = {"conv_taps": 3, "attention_layers": (False, True, False)}
DELTA: dict[str, Any] = {
    "mixer": "delta",
    "conv_taps": 4,
    "state_heads": 4,
    "state_key_heads": 2,
    "state_key_dim": 3,
    "state_value_dim": 5,
    "attention_layers": (False,) * 3,
}
KINDS: dict[str, dict[str, Any]] = {
    "short convolution": CONVOLVED,
    "biases": {**CONVOLVED, "conv_taps": 4, "conv_bias": True},
    "no attention": {"conv_taps": 2, "attention_layers": (False,) * 3},
    "delta nets": {**DELTA, "attention_layers": (False, True, False)},
    "delta nets, heads of keys for each": {**DELTA, "state_key_heads": 4, "hidden_act": "relu"},
    "state spaces": {**DELTA, "mixer": "mamba", "attention_layers": (False, True, False)},
    "state spaces with biases": {
        **DELTA,
        "mixer": "mamba",
        "conv_bias": True,
        "state_bias": True,
        "state_key_heads": 1,
        "position": "none",
        "attention_layers": (True, False, False),
    },
    "beside a window": {**CONVOLVED, "sliding_window": 3, "block": "sandwich"},
}
# Compiled as others are.
ALIKE = ("delta nets, heads of keys for each", "state spaces with biases")
TEXTS = np.random.default_rng(1).integers(0, 11, (2, 13))


def made(kind: str, **options: Any) -> tuple[Decoder, dict[str, np.ndarray[Any, Any]]]:
    model = build("decoder", CONFIG | KINDS[kind], **options)
    assert isinstance(model, Decoder)
    return model, fill(model)


@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_computes_what_numpy_does(kind: str) -> None:
    model, weights = made(kind)
    forward = graph_of(model, model.entries()[0])
    owned = {name: weight.to_numpy() for name, weight in forward.owners.items()}
    (logits,) = evaluate(forward, [TEXTS], {**weights, **owned})
    np.testing.assert_allclose(logits, Oracle(model.config, weights).logits(TEXTS), atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "slides"),
    [*((kind, True) for kind in KINDS if kind not in ALIKE), ("beside a window", False)],
)
def test_texts_in_pieces(kind: str, slides: bool) -> None:
    """Read in pieces and token by token, and once more behind another text in the same memory."""
    model, weights = made(kind, form=CacheLayout(slides=slides))
    expected = Oracle(model.config, weights).logits(TEXTS)
    steps = Steps(model, batch=2, decodes=True)
    for lengths in ((5, 1, 1, 4, 1, 1), (1, 1, 9, 2)):
        steps.position = 0  # what the memory holds is of the text before
        for length in lengths:
            first = steps.position
            logits = steps(TEXTS[:, first : first + length])
            np.testing.assert_allclose(logits, expected[:, first + length - 1], atol=1e-4)


def test_what_layers_keep_is_declared_by_them() -> None:
    model, _ = made("short convolution", form=CacheLayout(DType.float16))
    kept = {name: str(kind) for name, kind in model.cache().items()}
    assert kept["cache.0.inputs"] == "buffer float32[batch, 2, 8]"
    assert list(kept) == ["cache.0.inputs", "cache.1.key", "cache.1.value", "cache.2.inputs"]
    assert model.positions == {"cache.1.key": 3, "cache.1.value": 2}
    assert model.facts["is_recurrent"] is True
    assert "is_recurrent" not in build("decoder", CONFIG).facts
    assert [state.is_fixed for state in model.states()] == [True, False, True]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"attention_layers": (False, True, True)}, "needs conv_taps"),
        ({"attention_layers": (True,) * 2}, "attention_layers has 2 values, not 3"),
        ({**CONVOLVED, "conv_taps": 1}, "two tokens at least"),
        ({**DELTA, "state_key_dim": None}, "needs state_key_dim"),
        ({**DELTA, "state_key_heads": 3}, "state_heads 4 is not a multiple"),
        ({**CONVOLVED, "mixer": "rnn"}, "mixer"),
        ({**CONVOLVED, "conv_taps": 0}, "conv_taps is 0"),
    ],
)
def test_options_that_contradict_each_other(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        build("decoder", CONFIG | changes)
    assert problem in "\n".join(error.value.problems)


def test_no_device_has_a_part_of_it() -> None:
    model, _ = made("short convolution")
    with pytest.raises(ConfigurationError, match="split over 2 devices") as error:
        model.split(2)
    assert "2 layers, the first of them 0, keep a state of fixed size" in error.value.problems[0]
