"""Attention by blocks of keys against float64: lengths, masks, orders of dimensions, odd values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from maxtool.compiler.fusion.attention_fusions import ATTENTION_FUSIONS, UNMOVED
from maxtool.compiler.fusion.node_index import NodeIndex
from maxtool.compiler.kernels.cpu.block_attention import block_attention
from maxtool.compiler.kernels.kernel_options import HeadSizes, Mask
from maxtool.dtype import DType
from maxtool.graph import BufferType, Graph, Node, Tensor, TensorType, executor, ops
from tests.effort import thinned
from tests.graph.test_dot_attention import attended

from .harness import TILE, call, compiled, error, normal

# Scores of a few units, whose rounding exp turns into relative errors; sums over 300 keys.
BOUND = 2e-6
HEADS = HeadSizes(queries=4, keys=2, key_dim=20, value_dim=37)
LENGTHS = [(1, 1, 1), (2, 3, 17), (1, 72, 128), (1, 73, 129), (2, 130, 300), (1, 5, 0)]
MASKS = {
    "no mask": None,
    "padding": Mask("bool", (False, True, True, False)),
    "keys of a query": Mask("bool", (True, True, False, False)),
    "numbers of a head": Mask("float32", (True, False, False, False)),
    "numbers for all queries": Mask("float32", (False, False, True, False)),
    "whole queries": Mask("bool", (False, True, False, True)),
}


def mask_of(mask: Mask | None, sizes: tuple[int, int, int, int]) -> np.ndarray | None:
    """Return a mask of these sizes, at most; the first block of keys is hidden, where it can be."""
    if mask is None:
        return None
    shape = [1 if single else size for single, size in zip(mask.single, sizes, strict=True)]
    seen = np.random.default_rng(3).random(shape) < 0.7
    if shape[-1] > 200:
        seen[..., :130] = False
    if mask.dtype == "bool":
        return seen
    return np.where(seen, normal(4, *shape), -np.inf).astype("f4")


@pytest.mark.parametrize("by_token", thinned((False, True), True))
@pytest.mark.parametrize("causal", (False, True))
@pytest.mark.parametrize("name", thinned(MASKS, "no mask", "padding", "numbers of a head"))
def test_what_numpy_computes(name: str, causal: bool, by_token: bool) -> None:
    kernel = compiled(
        block_attention, TILE, "float32", HEADS, MASKS[name], causal, 0.2, "float32", by_token
    )
    swapped = (lambda array: array.swapaxes(1, 2)) if by_token else np.asarray
    for batch, n, m in LENGTHS:
        q = normal(0, batch, HEADS.queries, n, HEADS.key_dim)
        k = normal(1, batch, HEADS.keys, m, HEADS.key_dim)
        v = normal(2, batch, HEADS.keys, m, HEADS.value_dim)
        mask = mask_of(MASKS[name], (batch, HEADS.queries, n, m))
        expected = swapped(attended(q, k, v, mask, causal, 0.2))
        operands = [*map(swapped, (q, k, v)), *([] if mask is None else [mask])]
        assert error(call(kernel, *operands, shape=expected.shape), expected) < BOUND


def test_numbers_that_are_not_finite() -> None:
    """NaN reaches the queries that see it; those that see nothing get zeros."""
    mask = Mask("bool", (False, True, True, False))
    heads = HeadSizes(1, 1, 8, 8)
    kernel = compiled(block_attention, TILE, "float32", heads, mask, False, 1.0, "float32", False)
    q, k, v = (normal(seed, 2, 1, 150, 8) for seed in range(3))
    seen = np.zeros((2, 1, 1, 150), np.bool_)
    seen[0, ..., 100:] = True
    assert not call(kernel, q, k, v, seen, shape=q.shape)[1].any()
    seen[1] = True
    k[0, 0, 3] = np.nan
    q[1, 0, 7], k[1, 0, 140] = np.nan, 1e30
    result = call(kernel, q, k, v, seen, shape=q.shape)
    assert np.isfinite(result[0]).all()
    assert np.isnan(result[1, 0]).all(-1).nonzero()[0].tolist() == [7]


def heads_of(x: Tensor, heads: int) -> Tensor:
    return x.reshape([*x.shape[:2], heads, 8]).permute([0, 2, 1, 3])


def attention(query: Tensor, other: Tensor) -> Tensor:
    """Attention of heads; ``other`` has keys and values, of half as many heads."""
    key, value = heads_of(other, 2), heads_of(other, 2)
    return ops.scaled_dot_product_attention(query, key, value, causal=True)


def merged(x: Tensor, other: Tensor) -> Tensor:
    """Attention as encoders write it."""
    return attention(heads_of(x, 4), other).permute([0, 2, 1, 3])


# What is written, and what remains of its permutations and attention.
WRITTEN: dict[str, tuple[Callable[[Tensor, Tensor], object], list[str]]] = {
    "by encoders": (merged, [UNMOVED]),
    "with heads that are read again": (
        lambda x, other: [
            attention(query := heads_of(x, 4), other).permute([0, 2, 1, 3]),
            ops.exp(query),
        ],
        [*["permute"] * 3, "scaled_dot_product_attention", "permute"],
    ),
    "with the result as it is": (
        lambda x, other: attention(heads_of(x, 4), other),
        [*["permute"] * 3, "scaled_dot_product_attention"],
    ),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_permutations_that_the_kernel_takes_in(case: str) -> None:
    function, remains = WRITTEN[case]
    inputs = [TensorType(DType.float32, ["b", "n", dim]) for dim in (32, 16)]
    graph = Graph("g", function, inputs)
    index = NodeIndex(graph.nodes, graph.outputs)
    for fusion in ATTENTION_FUSIONS:
        fusion.apply(index, lambda _: True)
    operations = [node.op for node in index.nodes if isinstance(node, Node)]
    assert [op for op in operations if op == "permute" or "attention" in op] == remains


def test_a_mask_that_is_written_before_the_last_permutation() -> None:
    """A buffer is read where the attention stands, so the attention stays there."""

    def function(x: Tensor, mask: Tensor, other: Tensor, position: Tensor) -> list[Tensor]:
        query, key, value = (heads_of(x, 4) for _ in range(3))
        attended = ops.scaled_dot_product_attention(query, key, value, mask)
        written = ops.cache_write_value(mask, other, position)
        return [attended.permute([0, 2, 1, 3]), written]

    inputs = [
        TensorType(DType.float32, [1, 9, 32]),
        BufferType(DType.float32, [1, 4, 9, 9]),
        TensorType(DType.float32, [1, 2, 4, 9]),
        TensorType(DType.int32, [1]),
    ]
    graph = Graph("g", function, inputs)
    index = NodeIndex(graph.nodes, graph.outputs)
    for fusion in ATTENTION_FUSIONS:
        fusion.apply(index, lambda _: True)
    operations = [node.op for node in index.nodes if isinstance(node, Node)]
    assert UNMOVED not in operations
    assert "scaled_dot_product_attention" in operations


def test_heads_that_are_not_moved() -> None:
    inputs = [TensorType(DType.float32, ["b", "n", dim]) for dim in (32, 16)]
    run = executor.find_executor().compile(Graph("g", merged, inputs), {})
    x, other = normal(0, 2, 9, 32), normal(1, 2, 9, 16)
    q, k = (array.reshape(2, 9, -1, 8).swapaxes(1, 2) for array in (x, other))
    expected = attended(q, k, k, None, True, 8**-0.5).swapaxes(1, 2)
    (result,) = run(Tensor(x), Tensor(other))
    assert error(result.to_numpy(), expected) < BOUND
