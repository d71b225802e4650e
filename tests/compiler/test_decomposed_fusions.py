"""Norms and attention that are written as several operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from maxtool.compiler.placement import Placement
from maxtool.compiler.rewriting import rewrite
from maxtool.compiler.targets import Targets
from maxtool.dtype import DType
from maxtool.graph import Graph, Node, Tensor, TensorType, executor, ops
from maxtool.parity.evaluator import evaluate

F32 = DType.float32
SHAPE = ("n", 7, 4, 16)  # [batch, length, heads, elements of a head]
GAMMA, BETA = np.linspace(0.5, 2, 16, dtype="f4"), np.linspace(-1, 1, 16, dtype="f4")
MASK = np.where(np.tri(7, dtype=bool), 0, -1e30).astype("f4")
HIDDEN = np.where(np.arange(7)[:, None] == 3, -np.inf, MASK).astype("f4")

Call = Callable[[Tensor], Tensor]


def normed(
    x: Tensor, eps: float = 1e-5, axis: int = -1, gamma: Any = GAMMA, power: float = 2.0
) -> Tensor:
    centred = x - ops.mean(x, axis)
    squares = centred * centred if power == 2 else centred * x
    deviation = ops.sqrt(ops.mean(squares, axis) + eps)
    return centred / deviation * gamma + BETA


def heads(x: Tensor, factor: float) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, turned keys, and values."""
    return (
        ops.permute(x, (0, 2, 1, 3)),
        ops.permute(x * factor, (0, 2, 3, 1)),
        ops.permute(x + 1.0, (0, 2, 1, 3)),
    )


def attended(scores: Tensor, value: Tensor, axis: int = -1) -> Tensor:
    return ops.permute(ops.matmul(ops.softmax(scores, axis), value), (0, 2, 1, 3))


def divided(x: Tensor) -> Tensor:
    query, key, value = heads(x, 0.5)
    return attended(ops.matmul(query, key) / 4.0, value)


def multiplied(x: Tensor) -> Tensor:
    query, key, value = heads(x, 0.5)
    return attended(ops.matmul(query, key) * 0.25 + MASK, value)


def apart(x: Tensor) -> Tensor:
    query, key, value = heads(x, 0.5)
    return attended(ops.matmul(query * 0.5, key * 0.25), value)


def unscaled(x: Tensor) -> Tensor:
    query, key, value = heads(x, 0.5)
    return attended(MASK + ops.matmul(query, key), value)


def guarded(x: Tensor) -> Tensor:
    query, key, value = heads(x, 0.5)
    shares = ops.softmax(ops.matmul(query, key) * 0.5 + HIDDEN)
    kept = ops.where(ops.is_nan(shares), np.zeros(1, "f4"), shares)
    return ops.permute(ops.matmul(kept, value), (0, 2, 1, 3))


def scaled_by_a_tensor(x: Tensor) -> Tensor:
    query, key, value = heads(x, 0.5)
    return attended(ops.matmul(query, key) * ops.sigmoid(x[0, 0, 0, 0]), value)


def of_other_rows(x: Tensor) -> Tensor:
    query, key, value = heads(x, 0.5)
    return attended(ops.matmul(query, key), value, axis=-2)


def read_elsewhere(x: Tensor) -> Tensor:
    query, key, value = heads(x, 0.5)
    scores = ops.matmul(query, key)
    return attended(scores, value) + ops.mean(ops.mean(ops.mean(scores, -1), -2), 1)


NORMS: list[Call] = [normed, lambda x: normed(x, 0.25)]
ATTENTIONS: list[Call] = [divided, multiplied, apart, unscaled, guarded]
OTHERS: list[Call] = [
    lambda x: normed(x, axis=1),
    lambda x: normed(x, gamma=GAMMA[:1]),
    lambda x: normed(x, power=1),
    scaled_by_a_tensor,
    of_other_rows,
    read_elsewhere,
]


def graph_of(call: Call) -> Graph:
    return Graph("g", lambda x: [call(x)], [TensorType(F32, SHAPE)])


def operations(graph: Graph) -> set[str]:
    nodes = rewrite(graph, Placement.of([graph], Targets())).nodes
    return {node.op for node in nodes if isinstance(node, Node)}


@pytest.mark.parametrize("call", NORMS)
def test_norms_are_one_operation(call: Call) -> None:
    assert operations(graph_of(call)) == {"layer_norm"}


@pytest.mark.parametrize("call", ATTENTIONS)
def test_attention_is_one_operation(call: Call) -> None:
    """See that nothing is moved before and after it, either."""
    found = operations(graph_of(call))
    assert "attention_by_token" in found
    assert not {"matmul", "softmax", "permute"} & found


@pytest.mark.parametrize("call", OTHERS)
def test_what_is_neither(call: Call) -> None:
    found = operations(graph_of(call))
    assert not {"layer_norm", "attention_by_token", "scaled_dot_product_attention"} & found


def test_permutations_are_two_where_products_alone_read_them() -> None:
    def moved(x: Tensor) -> Tensor:
        return ops.relu(ops.permute(x, (0, 2, 3, 1)))

    graph = graph_of(moved)
    nodes = rewrite(graph, Placement.of([graph], Targets())).nodes
    assert [node.op for node in nodes if isinstance(node, Node)] == ["permute", "relu"]


@pytest.mark.parametrize("call", [*NORMS, *ATTENTIONS, *OTHERS])
def test_what_is_computed(call: Call) -> None:
    graph = graph_of(call)
    x = np.random.default_rng(0).standard_normal((3, 7, 4, 16)).astype("f4")
    with np.errstate(invalid="ignore"):
        (exact,) = evaluate(graph, [x], {})
    result = executor.find_executor().compile(graph, {})(Tensor(x))[0].to_numpy()
    np.testing.assert_allclose(result, exact, rtol=1e-4, atol=1e-5)
