"""Operations over time with a state, against NumPy's own convolution, in one call and in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, ops
from tests.compiler.cuda.harness import run

Array = np.ndarray[Any, Any]
BOUND = 1e-6


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype="f4")


def convolved(x: Array, weight: Array) -> Array:
    """Each channel of ``x [seq, channels]`` by NumPy, with zeros before it."""
    columns = zip(x.T.astype("f8"), weight[::-1].T.astype("f8"), strict=True)
    return np.stack([np.convolve(*pair)[: len(x)] for pair in columns], axis=1)


@pytest.mark.parametrize(("taps", "channels"), [(3, 37), (4, 512), (2, 1)])
@pytest.mark.parametrize("lengths", [(7,), (1,) * 7, (2, 1, 4), (6, 1)])
def test_a_text_in_pieces(taps: int, channels: int, lengths: tuple[int, ...]) -> None:
    """A state of NaN, as another text may leave it, does not count where one begins."""
    x, weight = normal(0, 2, 7, channels), normal(1, taps, channels)
    state = Tensor(np.full((2, taps - 1, channels), np.nan, "f4"))
    first, parts = 0, []
    for length in lengths:
        piece = Tensor(x[:, first : first + length])
        y, state = ops.causal_conv1d(piece, Tensor(weight), state, [first])
        parts.append(y.to_numpy())
        first += length
    expected = np.stack([convolved(text, weight) for text in x])
    np.testing.assert_allclose(np.concatenate(parts, axis=1), expected, rtol=1e-5, atol=1e-5)
    last = np.pad(x, ((0, 0), (taps, 0), (0, 0)))[:, -(taps - 1) :]
    np.testing.assert_array_equal(state.to_numpy(), last)


def test_slots_that_are_not_named_stay() -> None:
    x, weight, held = normal(0, 2, 5, 20), normal(1, 3, 20), normal(2, 4, 2, 20)
    where = np.array([0, 9], "i4"), np.array([2, 0], "i4")
    operands = (Tensor(array) for array in (x, weight, held))
    y, state = ops.causal_conv1d(*operands, Tensor(where[0]), slot=Tensor(where[1]))
    alone = convolved(np.concatenate([held[0], x[1]]), weight)[2:]
    np.testing.assert_allclose(y.to_numpy()[0], convolved(x[0], weight), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(y.to_numpy()[1], alone, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(state.to_numpy()[[1, 3]], held[[1, 3]])
    np.testing.assert_array_equal(state.to_numpy()[[2, 0]], x[:, -2:])


@pytest.mark.parametrize(("taps", "channels", "seq"), [(3, 300, 1), (4, 512, 6), (2, 7, 3)])
@pytest.mark.parametrize("slots", [False, True])
def test_the_kernel_of_gpus(taps: int, channels: int, seq: int, slots: bool) -> None:
    """The interpreter of kernels runs it; rows and results are those of CPUs."""
    rows = 3 if slots else 2
    x, weight = normal(0, 2, seq, channels), normal(1, taps, channels)
    held = normal(2, rows, taps - 1, channels)
    numbers = [np.array(values, "i4") for values in (([5, 0], [2, 1]) if slots else ([5],))]
    state, y = held.copy(), np.full_like(x, np.nan)
    run(
        "causal_convolution",
        *(state, x, weight, *numbers),
        into=y,
        updated=(0,),
        taps=taps,
        channels=channels,
        slots=slots,
    )
    at = dict(zip(("position", "slot"), map(Tensor, numbers), strict=False))
    expected, after = ops.causal_conv1d(Tensor(x), Tensor(weight), Tensor(held), **at)
    np.testing.assert_allclose(y, expected.to_numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(state, after.to_numpy())


def scanned(query: Array, key: Array, value: Array, decay: Array, beta: Array | None) -> Array:
    """One text from its beginning: what each token reads, from all writes of those before it."""
    shared, result = value.shape[1] // key.shape[1], np.zeros(value.shape)
    for head in range(value.shape[1]):
        held = np.zeros((key.shape[2], value.shape[2]))
        q, k = (x[:, head // shared].astype("f8") for x in (query, key))
        for t, new in enumerate(value[:, head].astype("f8")):
            held *= decay[t, head, ..., None]
            share = 1 if beta is None else beta[t, head]
            held += share * np.outer(k[t], new - (0 if beta is None else k[t] @ held))
            result[t, head] = q[t] @ held
    return result


def tokens(
    key_heads: int,
    heads: int,
    key_dim: int,
    value_dim: int,
    seq: int = 7,
    *,
    by_channel: bool = False,
) -> list[Array]:
    """Queries, keys, values, decays and betas of two texts."""
    query, key = (normal(seed, 2, seq, key_heads, key_dim) / key_dim**0.5 for seed in (0, 1))
    random = np.random.default_rng(3)
    channels = (key_dim,) if by_channel else ()
    decay = random.random((2, seq, heads, *channels), dtype="f4")
    beta = random.random((2, seq, heads), dtype="f4")
    return [query, key, normal(2, 2, seq, heads, value_dim), decay, beta]


@pytest.mark.parametrize("sizes", [(1, 4, 7, 20), (2, 2, 16, 37)], ids=["1-4-7-20", "2-2-16-37"])
@pytest.mark.parametrize("lengths", [(7,), (1,) * 7, (2, 1, 4)])
@pytest.mark.parametrize("has_beta", [True, False])
@pytest.mark.parametrize("by_channel", [True, False])
def test_a_scan_in_pieces(
    sizes: tuple[int, int, int, int], lengths: tuple[int, ...], has_beta: bool, by_channel: bool
) -> None:
    *operands, beta = tokens(*sizes, by_channel=by_channel)
    _, heads, key_dim, value_dim = sizes
    state = Tensor(np.full((2, heads, key_dim, value_dim), np.nan, "f4"))
    first, parts = 0, []
    for length in lengths:
        piece = slice(first, first + length)
        given = Tensor(beta[:, piece]) if has_beta else None
        cut = [Tensor(array[:, piece]) for array in operands]
        y, state = ops.linear_attention(*cut, state, [first], beta=given)
        parts.append(y.to_numpy())
        first += length
    for row, found in enumerate(np.concatenate(parts, axis=1)):
        own = [array[row] for array in operands]
        expected = scanned(*own, beta[row] if has_beta else None)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize("by_channel", [False, True])
def test_the_scan_of_gpus(slots: bool, by_channel: bool) -> None:
    """The interpreter of kernels runs it; a text begins, and another one goes on."""
    sizes = dict(zip(("key_heads", "heads", "key_dim", "value_dim"), (2, 4, 5, 9), strict=True))
    *operands, beta = tokens(*sizes.values(), seq=3, by_channel=by_channel)
    held = normal(4, 3 if slots else 2, 4, 5, 9)
    numbers = [np.array(values, "i4") for values in (([5, 0], [2, 1]) if slots else ([5],))]
    state, y = held.copy(), np.full_like(operands[2], np.nan)
    run(
        "linear_attention",
        *(state, *operands, beta, *numbers),
        into=y,
        updated=(0,),
        **sizes,
        delta=True,
        by_channel=by_channel,
        slots=slots,
    )
    at = dict(zip(("position", "slot"), map(Tensor, numbers), strict=False))
    given = [Tensor(array) for array in operands]
    expected, after = ops.linear_attention(*given, Tensor(held), beta=Tensor(beta), **at)
    np.testing.assert_allclose(y, expected.to_numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state, after.to_numpy(), rtol=1e-4, atol=1e-5)
    if slots:
        np.testing.assert_array_equal(state[0], held[0])


def kind(*shape: int | str, dtype: DType = DType.float32) -> TensorType:
    return TensorType(dtype, shape)


X, WEIGHT, STATE = kind("b", "s", 6), kind(3, 6), kind("b", 2, 6)
AT = kind(1, dtype=DType.int32)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ([kind("b", "s", "c"), WEIGHT, STATE, AT], r"\[batch, seq, channels\]"),
        ([X, kind(3, 5), STATE, AT], r"\[taps, channels\]"),
        ([X, kind(1, 6), STATE, AT], r"two taps"),
        ([X, WEIGHT, kind("b", 3, 6), AT], r"\[batch, taps - 1, channels\]"),
        ([X, WEIGHT, kind(4, 2, 6), AT], r"the batch of x"),
        ([X, WEIGHT, STATE, kind(1)], r"int32\[1\]"),
        ([kind("b", "s", 6, dtype=DType.float16), WEIGHT, STATE, AT], r"float32"),
    ],
)
def test_operands_that_do_not_fit(types: list[TensorType], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Graph("g", lambda *x: list(ops.causal_conv1d(*x)), types)


HEADS, DECAY, SUMS = kind("b", "s", 2, 3), kind("b", "s", 2), kind("b", 2, 3, 3)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ([HEADS, kind("b", "s", 1, 3), HEADS, DECAY, SUMS, AT], r"queries are as keys"),
        ([HEADS, HEADS, kind("b", "s", 3, 3), DECAY, SUMS, AT], r"heads are a multiple"),
        ([HEADS, HEADS, HEADS, kind("b", "s", 1), SUMS, AT], r"\[batch, seq, heads\]"),
        ([HEADS, HEADS, HEADS, kind("b", "s", 2, 4), SUMS, AT], r"decay \[..., key_dim\]"),
        ([HEADS, HEADS, HEADS, DECAY, kind("b", 2, 3, 4), AT], r"key_dim, value_dim\]"),
        ([HEADS, HEADS, HEADS, DECAY, kind(1, 2, 3, 3), AT], r"the batch of x"),
        ([HEADS, HEADS, HEADS, DECAY, SUMS, kind(2, dtype=DType.int32)], r"int32\[1\]"),
    ],
)
def test_operands_of_a_scan_that_do_not_fit(types: list[TensorType], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Graph("g", lambda *x: list(ops.linear_attention(*x)), types)
