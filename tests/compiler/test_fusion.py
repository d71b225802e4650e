"""The matcher: what a pattern finds, what it leaves alone, and where the new node stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from maxtool.compiler.fusion.matcher import Fusion, Match, op
from maxtool.compiler.fusion.node_index import NodeIndex
from maxtool.dtype import DType
from maxtool.graph import Graph, Node, Tensor, TensorType, ops

KIND = TensorType(DType.float32, ["n", 4])


def index_of(function: Callable[..., Any]) -> NodeIndex:
    graph = Graph("g", function, [KIND, KIND])
    return NodeIndex(graph.nodes, graph.outputs)


def fused(
    fusion: Fusion, index: NodeIndex, is_here: Callable[[Node], bool] = lambda _: True
) -> str:
    fusion.apply(index, is_here)
    return " ".join(node.op for node in index.nodes if isinstance(node, Node))


def joined(match: Match) -> Node:
    """Return the sum with the product in it."""
    operands = (match["x"], match["y"], match["other"])
    return Node("joined", operands, {}, match.nodes[0].outputs)


def squared(match: Match) -> Node:
    return Node("squared", (match["x"],), {}, match.nodes[0].outputs)


SUM_OF_PRODUCT = Fusion(
    (op("add", "product other -> sum", commutes=True), op("mul", "x y -> product")), joined
)

# What is written, and what remains of it.
FOUND: dict[str, tuple[Callable[[Tensor, Tensor], Any], str]] = {
    "a product and a sum": (lambda x, y: x * y + x, "joined"),
    "a sum and a product": (lambda x, y: x + x * y, "joined"),
    "something between them": (lambda x, y: [(p := x * y), ops.exp(x), p + x][1:], "exp joined"),
    "two products": (lambda x, y: x * y + y * x, "mul joined"),
    "one of two products is read again": (
        lambda x, y: [(p := x * y) + y * x, ops.exp(p)],
        "mul joined exp",
    ),
    "a product that is read again": (lambda x, y: [(p := x * y) + x, ops.exp(p)], "mul add exp"),
    "a product that is an output": (lambda x, y: [(p := x * y) + x, p], "mul add"),
    "a product with itself": (lambda x, y: (p := x * y) + p, "mul add"),
    "no product": (lambda x, y: x + y, "add"),
}


@pytest.mark.parametrize("case", FOUND)
def test_what_is_joined(case: str) -> None:
    function, remains = FOUND[case]
    assert fused(SUM_OF_PRODUCT, index_of(function)) == remains


def test_a_name_is_one_value() -> None:
    square = Fusion((op("mul", "x x -> square"),), squared)
    assert fused(square, index_of(lambda x, y: [x * x, x * y])) == "squared mul"


def test_nodes_of_other_targets_stay() -> None:
    index = index_of(lambda x, y: x * y + x)
    assert fused(SUM_OF_PRODUCT, index, lambda node: node.op != "mul") == "mul add"


def test_readers_of_one_value_are_joined_where_the_first_stood() -> None:
    def both(match: Match) -> Node:
        results = tuple(node.outputs[0] for node in match.nodes)
        return Node("both", (match["x"],), {}, results)

    pattern = (op("exp", "x -> *first"), op("exp", "x -> *second"))
    function = lambda x, y: [ops.exp(x), ops.log(x), ops.exp(x), ops.exp(y)]  # noqa: E731
    assert fused(Fusion(pattern, both, early=True), index_of(function)) == "both log exp"
    assert fused(Fusion(pattern, both), index_of(function)) == "log both exp"
    assert fused(Fusion(pattern, both, unique=True), index_of(function)) == "log both exp"
    three = index_of(lambda x, y: [ops.exp(x), ops.exp(x), ops.exp(x), y])
    assert fused(Fusion(pattern, both, unique=True), three) == "exp exp exp"


def test_a_result_that_is_read_before_the_new_node_would_stand() -> None:
    def both(match: Match) -> Node:
        results = tuple(node.outputs[0] for node in match.nodes)
        return Node("both", (match["x"], match["y"]), {}, results)

    pattern = (op("exp", "x -> first"), op("add", "x y -> second"))

    def function(x: Tensor, _: Tensor) -> list[Tensor]:
        first = ops.exp(x)
        return [first, x + ops.log(first)]

    assert fused(Fusion(pattern, both), index_of(function)) == "exp log add"
    assert fused(Fusion(pattern, both, early=True), index_of(function)) == "exp log add"


def test_the_index_stays_true() -> None:
    index = index_of(lambda x, y: ops.exp(x * y + x))
    before = index.nodes
    fused(SUM_OF_PRODUCT, index)
    new, exp = index.nodes
    assert exp is before[2]
    assert index.producer(exp.inputs[0]) is new
    assert index.producer(before[0].outputs[0]) is None
    x = before[0].inputs[0]
    assert index.readers(x) == [new, new]
    assert index.uses(x) == 2
    assert index.is_output(exp.outputs[0])
    assert index.uses(exp.outputs[0]) == 1


def test_operands_that_are_left_have_a_star() -> None:
    rows = Fusion((op("concat", "first *rest -> result"),), lambda match: (
        Node("joined", match.all("*rest"), {}, match.nodes[0].outputs)
    ))  # fmt: skip
    index = index_of(lambda x, y: ops.concat([x, y, Tensor(np.ones((1, 4), "f4"))]))
    assert fused(rows, index) == "joined"
    assert len(index.nodes[0].inputs) == 2
