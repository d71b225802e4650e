"""Decoders that make vectors of texts, whose tokens see those before them alone, or all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maxtool.architectures import TextEmbedder, build, graph_of
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.errors import ConfigurationError
from maxtool.parity import evaluate
from tests.architectures.decoders import CONFIG, fill

CENTRED = {"bidirectional": True, "centred_windows": True, "sliding_window": 5}


def made(**changes: Any) -> TextEmbedder:
    module = build("decoder", CONFIG | changes)
    assert isinstance(module, TextEmbedder)
    return module


def vectors(module: TextEmbedder, ids: Any, mask: Any) -> Any:
    """The vectors of tokens with a mask, from weights that a seed makes."""
    weights = fill(module)
    graph = graph_of(module, next(one for one in module.entries() if one.name == "forward"))
    derived = {name: weight.to_numpy() for name, weight in graph.owners.items()}
    return evaluate(graph, [ids, mask], weights | derived)[0]


@pytest.mark.parametrize("changes", [{}, CENTRED])
def test_padding_changes_no_vector(changes: dict[str, Any]) -> None:
    module = made(**({"bidirectional": True} | changes))
    ids = np.array([[3, 1, 4, 1, 5, 9, 2, 6]])
    mask = np.array([[1, 1, 1, 1, 1, 1, 0, 0]])
    whole = vectors(module, ids, mask)
    other = vectors(module, np.where(mask, ids, 7), mask)
    alone = vectors(module, ids[:, :6], mask[:, :6])
    np.testing.assert_allclose(whole[:, :6], other[:, :6], rtol=1e-9)
    np.testing.assert_allclose(whole[:, :6], alone, rtol=1e-9)


@pytest.mark.parametrize("window", [4, 5])
def test_windows_reach_as_far_to_either_side(window: int) -> None:
    """Change a token below one layer: the vectors of those at most 2 away change."""
    module = made(**CENTRED | {"n_layers": 1, "sliding_window": window})
    ids, mask = np.array([[3, 1, 4, 1, 5, 9, 2, 6]]), np.ones((1, 8), np.int64)
    changed = ids.copy()
    changed[0, 4] = 8
    differs = np.abs(vectors(module, ids, mask) - vectors(module, changed, mask)).max(-1) > 1e-9
    np.testing.assert_array_equal(np.flatnonzero(differs[0]), [2, 3, 4, 5, 6])


def test_pooling_is_the_mean_where_nothing_is_said() -> None:
    assert made(bidirectional=True).facts["pooling"] == "mean"
    assert made(bidirectional=True, pooling="last").facts["pooling"] == "last"
    assert not DecoderConfig(**CONFIG).makes_vectors


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"attention_softcap": 2.0}, "attention_softcap with attention in both directions"),
        ({"attention_sinks": True}, "attention_sinks with attention in both directions"),
        ({"position": "alibi"}, "linear biases of positions with attention in both"),
        ({"sliding_window": 5}, "nothing says how far they reach"),
        (
            {
                "mixer": "convolution",
                "conv_taps": 3,
                "attention_layers": (True, *[False] * (CONFIG["n_layers"] - 1)),
            },
            "mixer 'convolution' with attention in both directions",
        ),
    ],
)
def test_options_that_have_no_meaning_then(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        build("decoder", CONFIG | {"bidirectional": True} | changes)
