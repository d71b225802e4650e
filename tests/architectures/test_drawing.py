"""Decoders that draw the next token themselves give what the host picks from their logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from maxtool.architectures import Decoder, DecoderConfig, graph_of
from maxtool.dtype import DType
from maxtool.graph import Tensor, executor
from maxtool.runtime.loader.sampling import Sampling, distribution, penalised
from tests.architectures.decoders import CONFIG, Steps, fill

TEXT = [3, 1, 4, 1, 5]
COUNT = 8


@cache
def model() -> Decoder:
    result = Decoder(DecoderConfig(**CONFIG), draws=True)
    fill(result)
    return result


@cache
def programs() -> Mapping[str, Callable[..., Any]]:
    """Compile the entries that draw."""
    decoder, result = model(), {}
    for entry in decoder.entries()[3:]:
        graph = graph_of(decoder, entry)
        weights = decoder.state_dict() | {n: w.to_numpy() for n, w in graph.owners.items()}
        result[entry.name] = executor.find_executor().compile(graph, weights)
    return result


@pytest.fixture(scope="module")
def steps() -> Steps:
    return Steps(model(), 1)


def picked(steps: Steps, how: Sampling, numbers: np.ndarray) -> list[int]:
    """The tokens the host picks, reading one after the other."""
    text = list(TEXT)
    steps.restart()
    for number in numbers:
        start = steps.position
        logits = penalised(steps(np.array([text[start:]]))[0], text, how.repetition_penalty)
        if how.temperature == 0:
            text.append(int(logits.argmax()))
            continue
        tokens, shares = distribution(logits, how)
        text.append(int(tokens[np.searchsorted(shares.cumsum(), number, side="right")]))
    return text[len(TEXT) :]


def drawn(settings: list[float], numbers: np.ndarray) -> list[int]:
    """The tokens that come out of the model, where each call goes on from the last."""
    decoder = model()
    entries = {entry.name: entry for entry in decoder.entries()}
    state = [
        np.zeros([1, *map(int, kind.shape[1:])], kind.dtype.to_numpy())
        for kind in entries["sample_decode"].state.values()
    ]
    draws = np.zeros(decoder.context, "f4")
    draws[0], draws[len(TEXT) : len(TEXT) + len(numbers) - 1] = numbers[0], numbers[1:]
    token, position = np.array([TEXT]), np.array([0], "i4")
    result = []
    for name in ["sample_prefill"] + ["sample_decode"] * (len(numbers) - 1):
        inputs: list[Any] = [token, position, draws, np.array(settings, "f4"), *state]
        token, position = (one.to_numpy() for one in programs()[name](*map(Tensor, inputs)))
        assert (token.dtype, position.dtype, token.shape) == (np.int64, np.int32, (1, 1))
        assert position == len(TEXT) + len(result)
        result.append(int(token[0, 0]))
    seen = {*TEXT, *result[:-1]}  # the last is marked by the call that reads it
    assert set(np.flatnonzero(state[-1])) == seen
    return result


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "settings"),
    [
        (Sampling(0.0), [0, 0, 1, 0, 1]),
        (Sampling(0.0, repetition_penalty=1.5), [0, 0, 1, 0, 1.5]),
        (Sampling(1.0), [1, 0, 1, 0, 1]),
        (Sampling(0.8, 6, 0.9, 0.02, 1.25), [0.8, 6, 0.9, 0.02, 1.25]),
    ],
)
def test_the_tokens_are_those_of_the_host(
    steps: Steps, how: Sampling, settings: list[float]
) -> None:
    numbers = np.random.default_rng(4).random(COUNT).astype("f4")
    assert drawn(settings, numbers) == picked(steps, how, numbers)


def test_only_decoders_that_are_told_so_draw() -> None:
    plain = Decoder(DecoderConfig(**CONFIG))
    names = [entry.name for entry in plain.entries()]
    assert names == ["forward", "prefill", "decode"]
    entries = model().entries()
    assert [entry.name for entry in entries[3:]] == ["sample_prefill", "sample_decode"]
    assert [entry.follows for entry in entries] == [None] * 3 + ["prefill", "decode"]
    for less, more in pairwise([entries[1], entries[3]]):
        assert list(more.state)[: len(less.state)] == list(less.state)
    assert entries[3].state["seen"].dtype is DType.int8
