"""The walk over a graph: calls, control flow, state, sizes and weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import CPU, BufferType, Graph, Tensor, TensorType, ops
from maxtool.nn import Linear, Module, ModuleList
from maxtool.nn.tracing import trace
from maxtool.parity import evaluate

Array = np.ndarray[Any, Any]
F32, BOOL, INT64 = DType.float32, TensorType(DType.bool, []), TensorType(DType.int64, [])
ROWS = TensorType(F32, ["n", 3])
X = np.arange(6, dtype=np.float32).reshape(2, 3)
FIRST = np.array([1], np.int32)


class Layers(Module):
    """Two layers of one form, which are traced once and called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = ModuleList([Linear(3, 3, F32, CPU(), has_bias=True) for _ in range(2)])

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Reading(Mapping[str, Array]):
    """Weights that are made when they are asked for, in bfloat16."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.weights = weights
        self.read: list[str] = []

    def __getitem__(self, name: str) -> Array:
        self.read.append(name)
        return self.weights[name].astype(DType.bfloat16.to_numpy())

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)


def layers() -> tuple[Graph, Reading]:
    module = Layers()
    graph = trace(module, "layers", [ROWS], module.__call__)
    shapes = {name: value.shape.static() for name, value in graph.weight_values.items()}
    values = {name: np.full(shape, i + 1.0) for i, (name, shape) in enumerate(shapes.items())}
    return graph, Reading(values)


def test_each_call_of_a_layer_reads_its_own_weights() -> None:
    graph, weights = layers()
    (found,) = evaluate(graph, [X], weights)
    expected = X.astype("f8")
    for number in range(2):
        weight = weights.weights[f"layers.{number}.weight"]
        expected = expected @ weight.T + weights.weights[f"layers.{number}.bias"]
    np.testing.assert_array_equal(found, expected)
    assert sorted(weights.read) == sorted(weights.weights)


def test_a_missing_weight_is_named() -> None:
    graph, _ = layers()
    with pytest.raises(KeyError, match=r"layers\.0"):
        evaluate(graph, [X], {})


@pytest.mark.parametrize("pred", [True, False])
def test_one_of_two_branches_runs(pred: bool) -> None:
    def chosen(pred: Tensor, x: Tensor) -> list[Tensor]:
        y = x * 2.0
        return ops.cond(pred, [x.type], lambda: y + 1.0, lambda: x - y)

    (found,) = evaluate(Graph("chosen", chosen, [BOOL, ROWS]), [np.array(pred), X])
    np.testing.assert_array_equal(found, X * 2 + 1 if pred else -X)


def test_a_loop_in_a_loop_runs_until_its_predicate_is_false() -> None:
    def triangle(n: Tensor, x: Tensor) -> list[Tensor]:
        def row(i: Tensor, total: Tensor) -> list[Tensor]:
            (_, inner) = ops.while_loop(
                [i, total], lambda j, _: j > 0, lambda j, t: [j - 1, t + x.sum()[0]]
            )
            return [i - 1, inner]

        return ops.while_loop([n, ops.constant(0.0, F32)], lambda i, _: i > 0, row)

    graph = Graph("triangle", triangle, [INT64, TensorType(F32, [3])])
    left, total = evaluate(graph, [np.array(4), np.full(3, 0.5, np.float32)])
    assert (left, total) == (0, 10 * 1.5)


def test_a_condition_without_results_runs_what_it_prints() -> None:
    def said(pred: Tensor) -> Tensor:
        ops.cond(pred, None, lambda: ops.print(pred, "yes"), lambda: None)
        return pred

    assert evaluate(Graph("said", said, [BOOL]), [np.array(True)]) == [np.array(True)]


def test_buffers_are_written_in_place_and_older_values_stay() -> None:
    kind = BufferType(F32, [1, 1, "context", 2])
    graph = Graph(
        "written",
        lambda cache, x: [
            ops.permute(cache, [0, 1, 3, 2]),
            ops.cache_write_value(ops.cache_write_value(cache, x, FIRST), x + 1.0, FIRST + 1),
        ],
        [kind, TensorType(F32, [1, 1, 1, 2])],
    )
    cache, x = np.zeros((1, 1, 4, 2)), np.array([[[[5, 6]]]], np.float32)
    before, after = evaluate(graph, [cache, x])
    assert after is cache
    assert not before.any()
    np.testing.assert_array_equal(cache[0, 0], [[0, 0], [5, 6], [6, 7], [0, 0]])


def test_what_is_not_a_buffer_is_copied() -> None:
    types = [TensorType(F32, [1, 1, 4, 2]), TensorType(F32, [1, 1, 1, 2])]
    graph = Graph("copied", lambda cache, x: ops.cache_write_value(cache, x, FIRST), types)
    cache = np.zeros((1, 1, 4, 2))
    (after,) = evaluate(graph, [cache, np.ones((1, 1, 1, 2))])
    assert after.any()
    assert not cache.any()


def test_sizes_become_numbers() -> None:
    graph = Graph(
        "sizes",
        lambda x: [ops.shape_to_tensor(x.shape), ops.reshape(x, [x.shape[0] * 3])],
        [ROWS],
    )
    sizes, flat = evaluate(graph, [X])
    assert sizes.tolist() == [2, 3]
    assert flat.shape == (6,)


def test_sizes_that_disagree_are_refused() -> None:
    graph = Graph("pair", lambda x, y: [x, y], [ROWS, ROWS])
    with pytest.raises(ValueError, match=r"pair: float32\[n, 3\] has the shape \[4, 3\]"):
        evaluate(graph, [X, np.zeros((4, 3))])
    with pytest.raises(ValueError, match=r"\[2, 3, 1\]"):
        evaluate(graph, [X[..., None], X])


def test_a_claim_about_sizes_is_checked() -> None:
    graph = Graph("claimed", lambda x: ops.rebind(x, [4, 3]), [ROWS])
    with pytest.raises(ValueError, match="rebind"):
        evaluate(graph, [X])


def test_operations_between_devices_are_refused() -> None:
    graph = Graph("parts", lambda x: ops.all_reduce(x, 2), [ROWS])
    with pytest.raises(ValueError, match=r"all_reduce cannot be evaluated: .* several devices"):
        evaluate(graph, [X])
