"""Activations that are written as several operations."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np
import pytest

from maxtool.compiler.placement import Placement
from maxtool.compiler.rewriting import rewrite
from maxtool.compiler.targets import Targets
from maxtool.dtype import DType
from maxtool.graph import Graph, Node, Tensor, TensorType, executor, ops
from maxtool.parity.evaluator import evaluate

F32 = DType.float32
ROOT = np.float32(sqrt(2))
GELUS: list[Callable[[Tensor], Tensor]] = [
    lambda x: (x * (ops.erf(x / ROOT) + 1.0)) * 0.5,
    lambda x: (x * 0.5) * (1.0 + ops.erf(x * np.float32(sqrt(0.5)))),
    lambda x: x * (0.5 * (1.0 + ops.erf(x / ROOT))),
]
OTHERS: list[Callable[[Tensor], Tensor]] = [
    lambda x: (x * (ops.erf(x / ROOT) + 1.0)) * 0.25,
    lambda x: (x * (ops.erf(x / np.float32(1.5)) + 1.0)) * 0.5,
    lambda x: (x * (ops.erf(x / ROOT) + 2.0)) * 0.5,
    lambda x: (x * (ops.erf(ops.abs(x) / ROOT) + 1.0)) * 0.5,
    lambda x: (x * (ops.erf(x / ROOT) + 1.0)) * np.full((1, 1, 1), 0.5, "f4"),
]


def graph_of(call: Callable[[Tensor], Tensor]) -> Graph:
    return Graph("g", lambda x: [call(x)], [TensorType(F32, ["n", 8])])


def operations(graph: Graph) -> set[str]:
    nodes = rewrite(graph, Placement.of([graph], Targets())).nodes
    return {node.op for node in nodes if isinstance(node, Node)}


@pytest.mark.parametrize("call", GELUS)
def test_exported_gelus_are_one_operation(call: Callable[[Tensor], Tensor]) -> None:
    assert operations(graph_of(call)) == {"gelu"}


@pytest.mark.parametrize("call", OTHERS)
def test_what_is_no_gelu(call: Callable[[Tensor], Tensor]) -> None:
    assert "gelu" not in operations(graph_of(call))


@pytest.mark.parametrize("call", [*GELUS, *OTHERS])
def test_what_is_computed(call: Callable[[Tensor], Tensor]) -> None:
    graph = graph_of(call)
    x = np.random.default_rng(0).standard_normal((50, 8)).astype("f4") * 3
    (exact,) = evaluate(graph, [x], {})
    result = executor.find_executor().compile(graph, {})(Tensor(x))[0].to_numpy()
    assert result.shape == exact.shape
    np.testing.assert_allclose(result, exact, rtol=1e-5, atol=1e-6)
