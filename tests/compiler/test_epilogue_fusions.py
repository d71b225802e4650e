"""Products that take in what is done to their results, and those of one input, on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from maxtool.compiler.cpu_target import cpu_target
from maxtool.compiler.fusion.epilogue_fusions import epilogues_of
from maxtool.compiler.placement import placed
from maxtool.compiler.rewriting import rewrite
from maxtool.dtype import DType
from maxtool.graph import Graph, Node, Tensor, TensorType, Weight, executor, ops
from maxtool.parity.activation_rounding import rounded_to_bfloat16

ROWS = TensorType(DType.float32, ["n", 8])
gate = Weight("gate", DType.float32, [5, 8])
up = Weight("up", DType.float32, [5, 8])
down = Weight("down", DType.float32, [8, 5])
square = Weight("square", DType.float32, [8, 8])
bias = Weight("bias", DType.float32, [5])
short = Weight("short", DType.bfloat16, [5, 8])
VALUES = {
    each.name: np.random.default_rng(i)
    .normal(size=each.shape.static())
    .astype(each.dtype.to_numpy())
    for i, each in enumerate((gate, up, down, square, bias, short))
}
G, U, D, S, B, H = (value.astype("f8") for value in VALUES.values())

silu = lambda x: x / (1 + np.exp(-x))  # noqa: E731
relu = lambda x: np.maximum(x, 0)  # noqa: E731

# What is written, what NumPy makes of it, the nodes that are lowered, and how many matrices and
# steps their epilogues have.
CASES: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Any], str, list[Any]]] = {
    "residual": (lambda x: x + x @ square.T, lambda x: x + x @ S.T, "fused_linear", [(1, 1)]),
    "activation": (
        lambda x: ops.relu(x @ gate.T + bias), lambda x: relu(x @ G.T + B),
        "fused_linear", [(1, 1)],
    ),
    "gate": (
        lambda x: ops.silu(x @ gate.T) * (x @ up.T), lambda x: silu(x @ G.T) * (x @ U.T),
        "fused_linear", [(2, 2)],
    ),
    "gate last, with a bias": (
        lambda x: (x @ up.T + bias) * ops.silu(x @ gate.T),
        lambda x: (x @ U.T + B) * silu(x @ G.T), "fused_linear", [(2, 2)],
    ),
    "gate of two types": (
        lambda x: ops.silu(x @ gate.T) * ops.linear(x, short), lambda x: silu(x @ G.T) * (x @ H.T),
        "fused_linear", [(2, 2)],
    ),
    "gated block": (
        lambda x: x + (ops.silu(x @ gate.T) * (x @ up.T)) @ down.T,
        lambda x: x + (silu(x @ G.T) * (x @ U.T)) @ D.T,
        "fused_linear fused_linear", [(2, 2), (1, 1)],
    ),
    "several steps": (
        lambda x: ops.relu(x @ square.T + x) * x, lambda x: relu(x @ S.T + x) * x,
        "fused_linear", [(1, 3)],
    ),
    "too many steps": (
        lambda x: ops.relu(ops.relu(ops.relu(x @ square.T + x) * x)) + x,
        lambda x: relu(relu(relu(x @ S.T + x) * x)) + x, "fused_linear relu add", [(1, 4)],
    ),
    "one input": (
        lambda x: [x @ gate.T, x @ square.T, ops.linear(x, short, bias)],
        lambda x: [x @ G.T, x @ S.T, x @ H.T + B], "fused_linear", [(1, 0), (1, 0), (1, 0)],
    ),
    "one input, too many": (
        lambda x: [x @ gate.T, x @ square.T, ops.linear(x, short), x @ up.T, x @ gate.T],
        lambda x: [x @ G.T, x @ S.T, x @ H.T, x @ U.T, x @ G.T],
        "fused_linear linear", [(1, 0)] * 5,
    ),
    "sum of two products": (
        lambda x: x @ gate.T + (x + x) @ up.T, lambda x: x @ G.T + 2 * x @ U.T,
        "add linear fused_linear", [(1, 0), (1, 1)],
    ),
    "a product that is read again": (
        lambda x: [y := x @ square.T, y + x], lambda x: [x @ S.T, x @ S.T + x], "linear add",
        [(1, 0)],
    ),
    "a product with itself": (
        lambda x: (y := x @ square.T) * y, lambda x: (x @ S.T) ** 2, "linear mul", [(1, 0)],
    ),
    "a gate that is read again": (
        lambda x: [a := ops.silu(x @ gate.T), a * (x @ up.T)],
        lambda x: [silu(x @ G.T), silu(x @ G.T) * (x @ U.T)], "fused_linear fused_linear",
        [(1, 1), (1, 1)],
    ),
    "what is let up is read again": (
        lambda x: [u := x @ up.T, ops.silu(x @ gate.T) * u],
        lambda x: [x @ U.T, silu(x @ G.T) * (x @ U.T)], "linear fused_linear", [(1, 0), (1, 2)],
    ),
    "an activation that is read again": (
        lambda x: [y := x @ square.T, ops.relu(y)], lambda x: [x @ S.T, relu(x @ S.T)],
        "linear relu", [(1, 0)],
    ),
    "an input that follows from the first": (
        lambda x: [y := x @ square.T, ops.relu(y) @ gate.T],
        lambda x: [x @ S.T, relu(x @ S.T) @ G.T], "linear relu linear", [(1, 0), (1, 0)],
    ),
    "other shapes": (
        lambda x: x @ gate.T + ops.relu(x[:1] @ up.T), lambda x: x @ G.T + relu(x[:1] @ U.T),
        "linear slice fused_linear add", [(1, 0), (1, 1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_fused(case: str) -> None:
    write, exact, run, shapes = CASES[case]
    graph = Graph("g", write, [ROWS])
    nodes = [each for each in rewrite(graph, placed(cpu_target())).nodes if isinstance(each, Node)]
    assert " ".join(node.op for node in nodes) == run
    epilogues = [e for node in nodes if "linear" in node.op for e in epilogues_of(node)]
    assert [(len(each.biases), len(each.steps)) for each in epilogues] == shapes
    compiled = executor.find_executor().compile(graph, VALUES)
    for rows in (1, 3, 20):
        x = np.random.default_rng(rows).normal(size=(rows, 8))
        x = rounded_to_bfloat16(x).astype("f4")  # as some machines round it
        expected = exact(x.astype("f8"))
        expected = expected if isinstance(expected, list) else [expected]
        for got, value in zip(compiled(Tensor(x)), expected, strict=True):
            np.testing.assert_allclose(got.to_numpy(), value, rtol=2e-5, atol=2e-5)


def test_half_precision_is_rounded_after_each_operation() -> None:
    """An epilogue would round once."""
    kind = TensorType(DType.bfloat16, ["n", 8])
    graph = Graph("g", lambda x: ops.relu(ops.linear(x, short)), [kind])
    nodes = rewrite(graph, placed(cpu_target())).nodes
    assert [node.op for node in nodes if isinstance(node, Node)] == ["linear", "relu"]
