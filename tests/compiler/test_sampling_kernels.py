"""Tokens drawn by kernels are those that the host draws, where rounding does not decide."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from maxtool.compiler.cpu_target import cpu_target
from maxtool.compiler.kernels.cpu import builder
from maxtool.compiler.kernels.cpu.backend import CpuBackend
from maxtool.compiler.kernels.token_sampling import sample
from maxtool.runtime.loader.sampling import Sampling, distribution, penalised
from tests.compiler.cuda.harness import build, resources, run
from tests.effort import examples, thinned

# How near to an edge between two tokens rounding may decide.
NEAR = 4e-6
BELOW_ONE = float(np.nextafter(np.float32(1), np.float32(0)))


@cache
def on_a_cpu() -> Any:
    target = cpu_target()
    return builder.build({"sample": sample(CpuBackend(target.tile))}, target.tvm)["sample"]


def drawn_on_a_cpu(seen: np.ndarray, *inputs: np.ndarray) -> np.ndarray:
    arguments = [tvm.runtime.tensor(one) for one in (seen, *inputs)]
    token = tvm.runtime.tensor(np.full((len(seen), 1), -7))
    on_a_cpu()(*arguments, token)
    seen[...] = arguments[0].numpy()
    return token.numpy()


def drawn_on_a_gpu(seen: np.ndarray, *inputs: np.ndarray) -> np.ndarray:
    token = np.full((len(seen), 1), -7)
    return run("sample", seen, *inputs, into=token, updated=(0,))


TARGETS = {"cpu": drawn_on_a_cpu, "cuda": drawn_on_a_gpu}


def numbers(how: Sampling) -> np.ndarray:
    """The settings as kernels take them."""
    inputs = how.temperature, how.top_k or 0, how.top_p, how.min_p or 0, how.repetition_penalty
    return np.array([1 if one is None else one for one in inputs], "f4")


def draw(target: str, logits: np.ndarray, before: list[int], how: Sampling, number: float) -> int:
    """The token a kernel draws after a text, whose last token it is told."""
    seen = np.zeros((1, logits.size), "i1")
    seen[0, before[:-1]] = 1
    tokens = np.array([before[-1:]], "i8").reshape(1, -1)
    draws, position = np.array([0.5, number, 0.5], "f4"), np.array([1], "i4")
    inputs = logits.reshape(1, -1), tokens, draws, position, numbers(how)
    result = TARGETS[target](seen, *inputs)
    assert set(np.flatnonzero(seen)) == set(before)
    return int(result[0, 0])


def host(logits: np.ndarray, before: list[int], how: Sampling, number: float) -> int:
    """The token the host draws."""
    moved = penalised(logits, before, how.repetition_penalty)
    if how.temperature == 0:
        return int(moved.argmax())
    tokens, shares = distribution(moved, how)
    place = int(np.searchsorted(shares.cumsum(), np.float32(number), side="right"))
    return int(tokens[min(place, tokens.size - 1)])


def allowed(logits: np.ndarray, before: list[int], how: Sampling, number: float) -> set[int]:
    """Return the tokens the host draws from logits that differ by no more than rounding."""
    moved = penalised(logits, before, how.repetition_penalty)
    result = {host(logits, before, how, number)}
    for factor in (1 - NEAR, 1, 1 + NEAR) if how.temperature else ():
        p = None if how.top_p is None else min(how.top_p * factor, 1.0)
        q = None if how.min_p is None else min(how.min_p * factor, 1.0)
        tokens, shares = distribution(moved, replace(how, top_p=p, min_p=q))
        ends = np.searchsorted(shares.cumsum(), [number - NEAR, number + NEAR], side="right")
        first, last = np.minimum(ends, tokens.size - 1)
        result |= set(tokens[first : last + 1].tolist())
    return result


HOWS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.3, 0.7, 1.0, 2.5, 100.0]),
    top_k=st.none() | st.integers(1, 30),
    top_p=st.none() | st.floats(0.0078125, 1.0, width=32),
    min_p=st.none() | st.floats(0.0, 1.0, width=32),
    repetition_penalty=st.sampled_from([1.0, 1.25, 2.0, 0.5]),
)
# Many of them equal, and whole numbers, so that a penalty of 2 leaves them exact.
LOGITS = hnp.arrays(
    np.float32, st.integers(1, 40), elements=st.integers(-12, 12).map(float)
) | hnp.arrays(np.float32, st.integers(1, 40), elements=st.floats(-30, 30, width=32))


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=examples(6, 40), deadline=None)
@given(LOGITS, st.data(), HOWS, st.floats(0, BELOW_ONE, width=32))
def test_any_draw(
    target: str, logits: np.ndarray, data: st.DataObject, how: Sampling, number: float
) -> None:
    before = data.draw(st.lists(st.integers(0, logits.size - 1), max_size=5))
    result = draw(target, logits, before, how, number)
    assert result in allowed(logits, before, how, number)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "number",
    thinned([0.5, BELOW_ONE, 0.0, 0.2, 0.8, 0.999], 0.5),
)
@pytest.mark.parametrize(
    "how",
    [
        Sampling(1.0),
        Sampling(0.7, top_k=40),
        Sampling(1.0, top_p=0.9),
        Sampling(0.8, top_k=50, top_p=0.95, min_p=0.05, repetition_penalty=1.1),
        Sampling(0.0, repetition_penalty=1.3),
    ],
)
def test_a_vocabulary(target: str, how: Sampling, number: float) -> None:
    random = np.random.default_rng(0)
    logits = (3 * random.standard_normal(5003)).astype("f4")
    before = [int(one) for one in random.integers(0, logits.size, 60)]
    result = draw(target, logits, before, how, number)
    assert result in allowed(logits, before, how, number)


@pytest.mark.parametrize("target", TARGETS)
def test_equal_logits_come_in_their_order(target: str) -> None:
    logits = np.zeros(64, "f4")
    for token in (0, 31, 32, 63):
        assert draw(target, logits, [], Sampling(1.0), (token + 0.5) / 64) == token
    assert draw(target, logits, [], Sampling(1.0, top_p=0.25), 0.99) == 15
    assert draw(target, logits, [], Sampling(0.0), 0.99) == 0
    # As many as the last of them are as likely, so all are.
    assert draw(target, logits, [], Sampling(1.0, top_k=3), 0.999) == 63


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_logits_that_are_not_finite_give_no_token(
    target: str, temperature: float, wrong: float
) -> None:
    logits = np.array([1, 2, wrong, 3], "f4")
    assert draw(target, logits, [], Sampling(temperature), 0.5) == -1
    assert draw(target, np.full(4, -np.inf, "f4"), [], Sampling(temperature), 0.5) == -1
    ruled_out = np.array([-np.inf, 1, -np.inf, -np.inf], "f4")
    for number in (0.0, 0.5, BELOW_ONE):
        assert draw(target, ruled_out, [], Sampling(temperature), number) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_rows_tokens_and_positions(target: str) -> None:
    """Each row for itself; ids that do not exist mark nothing; a position beyond draws is cut."""
    logits = np.array([[3, 2, 1, 0], [0, 1, 2, 3], [0, 5, 0, 4]], "f4")
    seen = np.array([[0] * 4, [0, 0, 1, 0], [0] * 4], "i1")
    tokens = np.array([[0, -1, 4], [3, 3, 1 << 40], [1, 1, 0]])
    draws = np.zeros(2, "f4")
    how = numbers(Sampling(0.0, repetition_penalty=4.0))
    result = TARGETS[target](seen, logits, tokens, draws, np.array([9], "i4"), how)
    np.testing.assert_array_equal(result, [[1], [1], [3]])
    np.testing.assert_array_equal(seen, [[1, 0, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0]])


def test_what_it_takes_of_a_gpu() -> None:
    result = dict(resources({"sample": build("sample")}))
    assert len(result) == 2
    assert not [name for name, one in result.items() if one.stack or one.spills]
