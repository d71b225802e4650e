"""Graphs whose channels come first: which permutations are left, and what is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from maxtool.compiler.fusion.channel_order import with_moved_permutes
from maxtool.dtype import DType
from maxtool.graph import Graph, Node, Tensor, TensorType, executor, ops
from maxtool.parity.evaluator import evaluate

F32 = DType.float32
rng = np.random.default_rng(0)
FILTER = rng.standard_normal((8, 8, 3, 3)).astype("f4") / 9
COLUMN = rng.standard_normal((8, 1, 1)).astype("f4")
# Operands of fewer dimensions than an image, of which several are no ones.
MAPS = [rng.standard_normal(shape).astype("f4") for shape in ((8, 6, 6), (8, 1, 6), (6, 6), (6,))]


def convolved(x: Tensor) -> Tensor:
    return ops.conv2d(x, FILTER, padding=1, input_layout="NCHW", filter_layout="FCRS")


def pooled(x: Tensor) -> Tensor:
    return ops.permute(ops.max_pool2d(ops.permute(x, (0, 2, 3, 1)), 2, 2), (0, 3, 1, 2))


def residual(x: Tensor) -> Tensor:
    first = ops.relu(convolved(x))
    return convolved(ops.relu(convolved(first)) + first)


def gated(x: Tensor) -> Tensor:
    y = ops.silu(convolved(x) * COLUMN + COLUMN)
    gate = ops.sigmoid(convolved(y.mean(3).mean(2)))
    return pooled(y * gate)


def joined(x: Tensor) -> Tensor:
    y = convolved(x)
    both = ops.concat([y, ops.pad(y, (0, 0, 0, 0, 0, 0, 0, 0))], 1)
    return convolved(both[:, 4:12])


def repeated(x: Tensor) -> Tensor:
    """Pixels repeated, as images are made larger, and a claim about the sizes."""
    y = ops.relu(convolved(x))
    rows = ops.gather(y, np.repeat(np.arange(6), 2), 2)
    columns = ops.gather(rows, np.repeat(np.arange(6), 2), 3)
    return convolved(ops.rebind(columns, (x.shape[0], 8, 12, 12), "twice as large"))


def ended(x: Tensor) -> Tensor:
    y = convolved(x).mean(3).mean(2)
    return ops.reshape(y, (x.shape[0], 8)) @ FILTER[:, :, 0, 0]


def beside_an_input(x: Tensor) -> Tensor:
    return convolved(convolved(x) + x)


def read_as_it_is(x: Tensor) -> Tensor:
    y = ops.relu(convolved(x))
    return convolved(y) + ops.reshape(ops.reshape(y, (-1, 6)), y.shape)


def beside_maps(x: Tensor) -> Tensor:
    for one in MAPS:
        x = one - convolved(ops.where(one > x, one * convolved(x), x))
    return x


# The permutations of four dimensions that are left, filters apart.
CASES: list[tuple[Callable[[Tensor], Tensor], int]] = [
    (residual, 2),
    (gated, 2),
    (joined, 2),
    (ended, 1),
    (beside_an_input, 2),
    (repeated, 2),
]


def images(nodes: list[Any], given: Graph) -> list[Node]:
    filters = {id(value) for _, value in given.constants}
    moves = (node for node in nodes if isinstance(node, Node) and node.op == "permute")
    return [node for node in moves if id(node.inputs[0]) not in filters]


def graph_of(call: Callable[[Tensor], Tensor]) -> Graph:
    return Graph("g", lambda x: [call(x)], [TensorType(F32, ["n", 8, 6, 6])])


@pytest.mark.parametrize(("call", "left"), CASES)
def test_permutations_cancel(call: Callable[[Tensor], Tensor], left: int) -> None:
    graph = graph_of(call)
    assert len(images(with_moved_permutes(graph), graph)) == left


@pytest.mark.sampled
@pytest.mark.parametrize("call", [*(call for call, _ in CASES), read_as_it_is, beside_maps])
def test_what_is_computed(call: Callable[[Tensor], Tensor]) -> None:
    graph = graph_of(call)
    run = executor.find_executor().compile(graph, {})
    x = rng.standard_normal((2, 8, 6, 6)).astype("f4")
    (exact,) = evaluate(graph, [x], {})
    np.testing.assert_allclose(run(Tensor(x))[0].to_numpy(), exact, rtol=1e-4, atol=1e-4)


def test_other_graphs_stay() -> None:
    graph = graph_of(lambda x: ops.relu(ops.permute(x, (0, 2, 3, 1))))
    assert with_moved_permutes(graph) == graph.nodes
