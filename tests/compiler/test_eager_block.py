"""A transformer block called eagerly with sizes that vary: a handful of programs, then no more."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from maxtool.compiler import compiling_executor, eager
from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.graph.ops.operation_cache import REPEATING

HEADS, DIM, WIDTH, HIDDEN = 2, 4, 8, 16
POSITIONS = 64
PAST = 3

rng = np.random.default_rng(0)
Array = np.ndarray


def drawn(*shape: int) -> Array:
    return (rng.standard_normal(shape) * 0.5).astype(np.float32)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The operations that were compiled since, in an executor of this test's own."""
    result: list[str] = []
    build = eager.Program

    def counted(graphs: list, targets: object) -> object:  # type: ignore[type-arg]
        result.append(graphs[0].nodes[0].op)
        return build(graphs, targets)  # type: ignore[arg-type]

    monkeypatch.setattr(eager, "Program", counted)
    compiling_executor.executor.cache_clear()
    REPEATING.clear()
    yield result
    compiling_executor.executor.cache_clear()
    REPEATING.clear()


class Block:
    """Attention over a past, with rotary positions and a mask, and a gated MLP."""

    def __init__(self) -> None:
        self.norm, self.norm_bias = drawn(WIDTH), drawn(WIDTH)
        self.query, self.key, self.value, self.out = (drawn(WIDTH, WIDTH) for _ in range(4))
        self.bias = drawn(WIDTH)
        self.up, self.down = drawn(2 * HIDDEN, WIDTH), drawn(WIDTH, HIDDEN)
        angles = rng.uniform(-3, 3, (POSITIONS, DIM // 2))
        self.cos, self.sin = np.cos(angles).astype("f4"), np.sin(angles).astype("f4")

    def past(self, batch: int) -> Array:
        return np.full((batch, PAST, HEADS, DIM), 0.25, np.float32)

    def eager(self, array: Array) -> Array:
        batch, seq, _ = array.shape
        x = Tensor(array)
        normed = ops.rms_norm(x, Tensor(self.norm), 1e-6)
        query, key, value = (
            (normed @ Tensor(one).T).reshape([batch, seq, HEADS, DIM])
            for one in (self.query, self.key, self.value)
        )
        key, value = (
            ops.concat([Tensor(self.past(batch)), one], axis=1)
            for one in (self.rotated(key, PAST), value)
        )
        query, key, value = (
            one.permute([0, 2, 1, 3]) for one in (self.rotated(query, PAST), key, value)
        )
        scores = (query @ key.transpose(-1, -2)) * DIM**-0.5
        places = ops.range(0, seq) + PAST
        seen = places.reshape([seq, 1]) >= ops.range(0, seq + PAST).reshape([1, seq + PAST])
        shares = ops.softmax(ops.where(seen, scores, -1e9))
        rows = (shares @ value).permute([0, 2, 1, 3]).reshape([batch * seq, WIDTH])
        x = x + ops.linear(rows, Tensor(self.out), Tensor(self.bias)).reshape([batch, seq, WIDTH])
        normed = ops.layer_norm(x, Tensor(self.norm), Tensor(self.norm_bias), 1e-5)
        gate, up = ops.split(ops.linear(normed, Tensor(self.up)), [HIDDEN, HIDDEN], axis=-1)
        return (x + ops.linear(ops.silu(gate) * up, Tensor(self.down))).to_numpy()

    def rotated(self, x: Tensor, start: int) -> Tensor:
        left, right = ops.split(x, [DIM // 2, DIM // 2], axis=-1)
        seq = int(x.shape[1])
        cos, sin = (
            Tensor(table)[start : start + seq].reshape([1, seq, 1, DIM // 2])
            for table in (self.cos, self.sin)
        )
        return ops.concat([left * cos - right * sin, right * cos + left * sin], axis=-1)

    def expected(self, inputs: Array) -> Array:
        """The same in NumPy and float64."""
        batch, seq, _ = inputs.shape
        x = inputs.astype("f8")

        def heads(weight: Array) -> Array:
            normed = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * self.norm
            return (normed @ weight.T).reshape(batch, seq, HEADS, DIM)

        def rotated(array: Array) -> Array:
            left, right = np.split(array, 2, axis=-1)
            cos, sin = (table[None, PAST : PAST + seq, None] for table in (self.cos, self.sin))
            return np.concatenate([left * cos - right * sin, right * cos + left * sin], -1)

        keys = np.concatenate([self.past(batch), rotated(heads(self.key))], 1)
        values = np.concatenate([self.past(batch), heads(self.value)], 1)
        scores = np.einsum("bshd,bthd->bhst", rotated(heads(self.query)), keys) * DIM**-0.5
        hidden = np.arange(seq)[:, None] + PAST < np.arange(seq + PAST)
        powers = np.exp(np.where(hidden, -np.inf, scores))
        shares = powers / powers.sum(-1, keepdims=True)
        rows = np.einsum("bhst,bthd->bshd", shares, values).reshape(batch, seq, WIDTH)
        x = x + rows @ self.out.T + self.bias
        normed = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        both = (normed * self.norm + self.norm_bias) @ self.up.T
        gate, up = both[..., :HIDDEN], both[..., HIDDEN:]
        return x + (gate / (1 + np.exp(-gate)) * up) @ self.down.T


FIRST = [(2, 5), (3, 7), (1, 6), (6, 1), (5, 5), (1, 1)]


@pytest.mark.long
def test_a_block_soon_compiles_no_more(compiled: list[str]) -> None:
    block = Block()
    block.eager(drawn(*FIRST[0], WIDTH))
    once = len(compiled)
    for batch, seq in FIRST[1:]:
        block.eager(drawn(batch, seq, WIDTH))
    # Each operation for the first sizes, and for all; some once more for a size of 1.
    assert len(compiled) <= 3 * once
    before = len(compiled)
    others = [(4, 9), (9, 4), (1, 33), (33, 1), (7, 7), (2, 5), (12, 11), (5, 2), (3, 10), (10, 3)]
    for batch, seq in others:
        x = drawn(batch, seq, WIDTH)
        np.testing.assert_allclose(block.eager(x), block.expected(x), rtol=2e-4, atol=2e-5)
    assert compiled[before:] == []


@pytest.mark.slow
@pytest.mark.parametrize("first", [(4, 4), (1, 1), (2, HEADS), (WIDTH, DIM)])
def test_it_does_not_matter_which_sizes_come_first(
    compiled: list[str], first: tuple[int, int]
) -> None:
    """Sizes that are equal by chance, to each other or to those of a weight."""
    block = Block()
    pairs = [first, (3, 5), (5, 3), (6, 6), (1, 7), (8, 2), (4, 1), (1, 1)]
    for _ in range(2):
        before = len(compiled)
        for batch, seq in pairs:
            x = drawn(batch, seq, WIDTH)
            np.testing.assert_allclose(block.eager(x), block.expected(x), rtol=2e-4, atol=2e-5)
    assert compiled[before:] == []


def test_numbers_tensors_and_types_are_told_apart_when_they_come_again() -> None:
    x = Tensor(np.array([-1, 0, 2], np.float32))
    for _ in range(2):
        np.testing.assert_array_equal((x * 0.0).to_numpy(), [-0.0, 0, 0])
        assert np.signbit((x * -0.0).to_numpy()).tolist() == [False, True, True]
        assert (x + 1).dtype is (x + True).dtype is DType.float32
        np.testing.assert_array_equal((x + 1).to_numpy(), [0, 1, 3])
        np.testing.assert_array_equal((x + 2).to_numpy(), [1, 2, 4])
        whole = Tensor(np.array([1, 2, 3], np.int16))
        assert (whole + whole).dtype is DType.int16
        assert (whole + x).dtype is DType.float32
        np.testing.assert_array_equal((whole + x).to_numpy(), [0, 2, 5])
        with pytest.raises(ValueError, match="cast the tensor first"):
            whole + 0.5


def test_what_is_applied_again_is_not_a_view_of_what_was() -> None:
    x = Tensor(np.zeros(4, np.float32))
    first, second = (ops.reshape(x, [2, 2]).to_numpy() for _ in range(2))
    added = [(x + 1).to_numpy() for _ in range(2)]
    first[:] = added[0][:] = 7
    assert not second.any() and not x.to_numpy().any() and np.all(added[1] == 1)
