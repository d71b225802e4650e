"""The scan of a state by channels, against sums of all writes in NumPy, at once and in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, ops
from tests.compiler.cuda.harness import run

Array = np.ndarray[Any, Any]


def tokens(state_dim: int, channels: int, seq: int = 7, seed: int = 0) -> list[Array]:
    """Queries, keys, values and steps of two texts, and the rates."""
    random = np.random.default_rng(seed)
    query, key = (random.standard_normal((2, seq, state_dim), dtype="f4") for _ in range(2))
    value = random.standard_normal((2, seq, channels), dtype="f4")
    step = random.gamma(0.5, 0.5, (2, seq, channels)).astype("f4")
    rate = -random.gamma(2, 2, (state_dim, channels)).astype("f4")
    return [query, key, value, step, rate]


def scanned(query: Array, key: Array, value: Array, step: Array, rate: Array) -> Array:
    """One text from its beginning: what each token reads of the writes of those before it."""
    query, key, value, step, rate = (x.astype("f8") for x in (query, key, value, step, rate))
    passed = np.cumsum(step, axis=0)
    result = np.zeros(value.shape)
    for t in range(len(value)):
        for s in range(t + 1):
            left = np.exp((passed[t] - passed[s]) * rate)
            result[t] += (query[t] * key[s]) @ left * step[s] * value[s]
    return result


def in_pieces(operands: list[Array], lengths: tuple[int, ...], state: Tensor) -> Array:
    """The results of texts that are read in pieces."""
    *moving, rate = operands
    first, parts = 0, []
    for length in lengths:
        piece = [Tensor(array[:, first : first + length]) for array in moving]
        y, state = ops.selective_scan(*piece, Tensor(rate), state, [first])
        parts.append(y.to_numpy())
        first += length
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize(("state_dim", "channels"), [(7, 37), (16, 512), (1, 1)])
@pytest.mark.parametrize("lengths", [(7,), (1,) * 7, (2, 1, 4)])
def test_a_text_in_pieces(state_dim: int, channels: int, lengths: tuple[int, ...]) -> None:
    """A state of NaN, as another text may leave it, does not count where one begins."""
    operands = tokens(state_dim, channels)
    state = Tensor(np.full((2, state_dim, channels), np.nan, "f4"))
    found = in_pieces(operands, lengths, state)
    for row, one in enumerate(found):
        expected = scanned(*(array[row] for array in operands[:-1]), operands[-1])
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.long
@given(
    st.integers(1, 19),
    st.integers(1, 70),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.integers(0, 1 << 32),
)
def test_any_sizes(state_dim: int, channels: int, lengths: list[int], seed: int) -> None:
    operands = tokens(state_dim, channels, sum(lengths), seed)
    state = Tensor(np.zeros((2, state_dim, channels), "f4"))
    found = in_pieces(operands, tuple(lengths), state)
    expected = scanned(*(array[1] for array in operands[:-1]), operands[-1])
    np.testing.assert_allclose(found[1], expected, rtol=1e-4, atol=1e-5)


def test_slots_that_are_not_named_stay() -> None:
    operands = tokens(3, 20)
    held = np.random.default_rng(1).standard_normal((4, 3, 20), dtype="f4")
    where = (Tensor(np.array(numbers, "i4")) for numbers in ([0, 9], [2, 0]))
    y, state = ops.selective_scan(
        *map(Tensor, operands), Tensor(held), next(where), slot=next(where)
    )
    begun = scanned(*(array[0] for array in operands[:-1]), operands[-1])
    np.testing.assert_allclose(y.to_numpy()[0], begun, rtol=1e-4, atol=1e-5)
    *moving, rate = operands
    query, _, _, step = (array[1].astype("f8") for array in moving)
    left = np.exp(np.cumsum(step, axis=0)[:, None] * rate) * held[0]
    more = np.einsum("tn,tnc->tc", query, left)
    expected = scanned(*(array[1] for array in moving), rate) + more
    np.testing.assert_allclose(y.to_numpy()[1], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(state.to_numpy()[[1, 3]], held[[1, 3]])


@pytest.mark.parametrize(("state_dim", "channels", "seq"), [(5, 9, 3), (16, 300, 1)])
@pytest.mark.parametrize("slots", [False, True])
def test_the_kernel_of_gpus(state_dim: int, channels: int, seq: int, slots: bool) -> None:
    """The interpreter of kernels runs it; a text begins, and another one goes on."""
    operands = tokens(state_dim, channels, seq)
    rows = 3 if slots else 2
    held = np.random.default_rng(1).standard_normal((rows, state_dim, channels), dtype="f4")
    numbers = [np.array(values, "i4") for values in (([5, 0], [2, 1]) if slots else ([5],))]
    state, y = held.copy(), np.full_like(operands[2], np.nan)
    run(
        "selective_scan",
        *(state, *operands, *numbers),
        into=y,
        updated=(0,),
        state_dim=state_dim,
        channels=channels,
        slots=slots,
    )
    at = dict(zip(("position", "slot"), map(Tensor, numbers), strict=False))
    expected, after = ops.selective_scan(*map(Tensor, operands), Tensor(held), **at)
    np.testing.assert_allclose(y, expected.to_numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state, after.to_numpy(), rtol=1e-4, atol=1e-5)
    if slots:
        np.testing.assert_array_equal(state[0], held[0])


def kind(*shape: int | str, dtype: DType = DType.float32) -> TensorType:
    return TensorType(dtype, shape)


READ, VALUE, RATE, STATE = kind("b", "s", 3), kind("b", "s", 6), kind(3, 6), kind("b", 3, 6)
AT = kind(1, dtype=DType.int32)
HALF = kind("b", "s", 6, dtype=DType.float16)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ([READ, READ, kind("b", "s", "c"), VALUE, RATE, STATE, AT], r"\[batch, seq, channels\]"),
        ([READ, READ, VALUE, kind("b", "s", 5), RATE, STATE, AT], r"the step is as the value"),
        ([READ, READ, VALUE, VALUE, kind(3, 5), STATE, AT], r"\[state_dim, channels\]"),
        ([READ, VALUE, VALUE, VALUE, RATE, STATE, AT], r"\[batch, seq, state_dim\]"),
        ([VALUE, READ, VALUE, VALUE, RATE, STATE, AT], r"\[batch, seq, state_dim\]"),
        ([READ, READ, VALUE, VALUE, RATE, kind("b", 4, 6), AT], r"\[batch, state_dim, channels\]"),
        ([READ, READ, VALUE, VALUE, RATE, kind(4, 3, 6), AT], r"the batch of x"),
        ([READ, READ, VALUE, VALUE, RATE, STATE, kind(1)], r"int32\[1\]"),
        ([READ, READ, VALUE, HALF, RATE, STATE, AT], r"float32"),
    ],
)
def test_operands_that_do_not_fit(types: list[TensorType], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Graph("g", lambda *x: list(ops.selective_scan(*x)), types)
