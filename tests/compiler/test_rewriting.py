"""Products and sums that run as ``linear``, and agree with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from maxtool.compiler.cpu_target import cpu_target
from maxtool.compiler.lowering_plan import LoweringPlan
from maxtool.compiler.placement import placed
from maxtool.compiler.rewriting import rewrite
from maxtool.dtype import DType
from maxtool.graph import BufferType, Graph, Node, Tensor, TensorType, Weight, executor, ops

ROWS = TensorType(DType.float32, ["n", 8])
weight = Weight("w", DType.float32, [5, 8])
square = Weight("s", DType.float32, [8, 8])
bias = Weight("b", DType.float32, [5])
ones = Weight("ones", DType.float32, [1, 5])
VALUES = {
    owner.name: np.random.default_rng(2).normal(size=owner.shape.static()).astype("f4")
    for owner in (weight, square, bias, ones)
}
W, S, B, ONES = (VALUES[name].astype("f8") for name in ("w", "s", "b", "ones"))

CASES: list[tuple[str, Callable[[Tensor], Any], Callable[[Any], Any], list[str]]] = [
    ("product", lambda x: x @ weight.T, lambda x: x @ W.T, ["linear"]),
    ("bias", lambda x: x @ weight.T + bias, lambda x: x @ W.T + B, ["linear"]),
    ("bias first", lambda x: bias + x @ weight.T, lambda x: x @ W.T + B, ["linear"]),
    ("two", lambda x: x @ weight.T + (x @ square)[:, :5], lambda x: x @ W.T + (x @ S)[:, :5],
     ["matmul", "slice", "fused_linear"]),
    ("twice", lambda x: (y := x @ weight.T) + y, lambda x: 2 * x @ W.T, ["linear", "add"]),
    ("row", lambda x: x @ weight.T + ones, lambda x: x @ W.T + ONES, ["linear", "add"]),
    ("number", lambda x: x @ weight.T + 1.0, lambda x: x @ W.T + 1, ["linear", "add"]),
    ("read", lambda x: [y := x @ weight.T, y + bias], lambda x: [x @ W.T, x @ W.T + B],
     ["linear", "add"]),
    ("plain", lambda x: x @ square, lambda x: x @ S, ["matmul"]),
    ("shown", lambda x: [x @ weight.T, weight.T], lambda x: [x @ W.T, W.T],
     ["linear", "permute"]),
    ("vector", lambda x: x[0] @ weight.T + bias, lambda x: x[0] @ W.T + B,
     ["slice", "reshape", "reshape", "linear", "reshape", "add"]),
    ("own", lambda x: x @ x.T, lambda x: x @ x.T, ["matmul"]),
    ("batch", lambda x: (y := x.reshape(["n", 2, 4])) @ y.T,
     lambda x: x.reshape(-1, 2, 4) @ x.reshape(-1, 2, 4).swapaxes(1, 2), ["reshape", "matmul"]),
    ("other", lambda x: x @ weight.permute([0, 1]).T.cast(DType.float32), lambda x: x @ W.T,
     ["permute", "permute", "cast", "matmul"]),
]  # fmt: skip


@pytest.mark.parametrize(("write", "exact", "run"), [case[1:] for case in CASES],
                         ids=[case[0] for case in CASES])  # fmt: skip
def test_rewritten(
    write: Callable[[Tensor], Any], exact: Callable[[Any], Any], run: list[str]
) -> None:
    graph = Graph("g", write, [ROWS])
    nodes = rewrite(graph, placed(cpu_target())).nodes
    assert [node.op for node in nodes if isinstance(node, Node)] == run
    x = np.random.default_rng(3).normal(size=(3, 8)).astype("f4")
    outputs = executor.find_executor().compile(graph, VALUES)(Tensor(x))
    expected = exact(x.astype("f8"))
    expected = expected if isinstance(expected, list) else [expected]
    for got, one in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(got.to_numpy(), one, rtol=1e-5, atol=1e-5)


def test_a_weight_in_a_product_is_packed() -> None:
    storage = LoweringPlan([Graph("g", CASES[1][1], [ROWS])], cpu_target()).storage
    assert storage["w"].block == cpu_target().tile.nr
    storage = LoweringPlan([Graph("g", CASES[9][1], [ROWS])], cpu_target()).storage
    assert storage["w"].block is None


def test_a_buffer_is_read_where_it_stands() -> None:
    """The product of a buffer that is overwritten before the bias is added."""
    kinds = [
        BufferType(DType.float32, [1, 1, 2, 4]),
        TensorType(DType.float32, [1, 1, 1, 2]),
        TensorType(DType.int32, [1]),
    ]
    factors = {"w": VALUES["w"][:, :4].copy(), "b": VALUES["b"]}
    small = Weight("w", DType.float32, [5, 4])

    def write(cache: Tensor, x: Tensor, position: Tensor) -> Tensor:
        before = cache @ small.T
        ops.cache_write_key(cache, x, position)
        return before + bias

    run = executor.find_executor().compile(Graph("g", write, kinds), factors)
    cache = np.ones((1, 1, 2, 4), np.float32)
    key = Tensor(np.full((1, 1, 1, 2), 7, np.float32))
    (got,) = run(Tensor(cache), key, Tensor(np.array([1], np.int32)))
    exact = np.ones((1, 1, 2, 4)) @ factors["w"].T + factors["b"]
    np.testing.assert_allclose(got.to_numpy(), exact, rtol=1e-5)
    assert cache[0, 0, :, 1].tolist() == [7, 7]
