"""Caches with slots: each row of a batch attends to its own, at its own position, and writes it."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from maxtool.compiler.kernels.cpu.attention import attention, slot_attention
from maxtool.compiler.kernels.kv_cache_write import cache_write

from .harness import BACKEND, TILE, call, compiled, error, normal
from .test_attention import BOUND, caches, reference

SLOTS, CONTEXT = 19, 150
# Slots and positions of the rows of a call: one, a few, and more than there are parts of a query.
ROWS = (
    ([4], [130]),
    ([2, 0, 18], [0, 149, 63]),
    ([*range(18, 0, -1)], [*range(3, 147, 8)]),
)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "window"), [(4, 2, 80, 7), (9, 3, 16, None), (8, 1, 8, 64)]
)
def test_attention_by_slot(
    heads: int, kv_heads: int, head_dim: int, window: int | None, dtype: str
) -> None:
    options = heads, kv_heads, head_dim, head_dim**-0.5, window, None, dtype
    function = compiled(slot_attention, TILE, *options)
    k, v = (normal(seed, SLOTS, CONTEXT, kv_heads, head_dim) for seed in (2, 3))
    stored = "float32" if dtype == "float32" else dtype
    k, v = (x.astype(stored).astype("f4") for x in (k, v))
    held = caches(k, v, CONTEXT, dtype)
    for slots, positions in ROWS:
        q = 2 * normal(1, len(slots), 1, heads, head_dim)
        where = np.array(positions, "i4"), np.array(slots, "i4")
        actual = call(function, q, *held, *where, shape=q.shape)
        for row, (slot, position) in enumerate(zip(slots, positions, strict=True)):
            seen = (x[slot : slot + 1, : position + 1] for x in (k, v))
            expected = reference(q[row : row + 1], *seen, position, window)
            assert error(actual[row : row + 1], expected) < BOUND, (slot, position)


def test_one_row_is_computed_as_without_slots() -> None:
    """Check the order too: a text gets the same numbers in whichever slot it is alone."""
    options = 6, 2, 24, 0.2
    k, v = normal(2, 3, 40, 2, 24), normal(3, 3, 40, 2, 24)
    keys, values = caches(k, v, 40)
    for seq, position in ((1, 33), (5, 12)):
        q, where = normal(1, 1, seq, 6, 24), np.array([position], "i4")
        plain = compiled(attention, TILE, *options)
        alone = call(plain, q, keys[2:], values[2:], where, shape=q.shape)
        slotted = compiled(slot_attention, TILE, *options)
        actual = call(slotted, q, keys, values, where, np.array([2], "i4"), shape=q.shape)
        np.testing.assert_array_equal(actual, alone)


@pytest.mark.parametrize("transposed", [False, True])
def test_rows_are_written_into_their_slots(transposed: bool) -> None:
    """A write outside, by its position or its slot, is dropped."""
    positions = np.array([0, 5, 62, -2, 1 << 30, 3, 3], "i4")
    slots = np.array([3, 0, 7, 5, 6, -1, 9], "i4")
    x = normal(0, len(slots), 4, 3, 10)
    expected = np.full((9, 3, 64, 10), 7, "f4")
    for row, (slot, position) in enumerate(zip(slots, positions, strict=True)):
        for s in range(4):
            if 0 <= int(position) + s < 64 and 0 <= slot < 9:
                expected[slot, :, position + s] = x[row, s]
    shape = (9, 3, 10, 64) if transposed else expected.shape
    cache = tvm.runtime.tensor(np.full(shape, 7, "f4"))
    function = compiled(cache_write, BACKEND, 3, 10, "float32", transposed, slots=True)
    function(cache, *(tvm.runtime.tensor(array) for array in (x, positions, slots)))
    actual = cache.numpy().swapaxes(2, 3) if transposed else cache.numpy()
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("slot", [-1, 3, 1 << 30, -(1 << 31)])
def test_a_slot_outside_the_cache_reads_nothing_outside(slot: int) -> None:
    q, k, v = normal(0, 1, 1, 2, 8), normal(1, 3, 64, 2, 8), normal(2, 3, 64, 2, 8)
    function = compiled(slot_attention, TILE, 2, 2, 8, 1.0, None)
    where = np.array([9], "i4"), np.array([slot], "i4")
    call(function, q, *caches(k, v, 64), *where, shape=q.shape)  # no crash
