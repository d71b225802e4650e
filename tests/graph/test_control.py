"""Control flow: at once outside of graphs, and decided by data inside of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import BufferType, Graph, Tensor, TensorType, executor, ops
from maxtool.nn import Linear, Module
from tests.compiler.execution import F32, compiled

BOOL, INT64 = TensorType(DType.bool, []), TensorType(DType.int64, [])
ROWS = TensorType(F32, ["n", 3])
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def chosen(pred: Tensor, x: Tensor) -> list[Tensor]:
    """Results of two types, of values from outside, constants and sizes."""
    types = [x.type, TensorType(F32, [x.shape[0] + 1])]
    y = x * 2.0
    tail = [x.shape[0] + 1]
    return ops.cond(
        pred,
        types,
        lambda: (y + 1.0, ops.broadcast_to(Tensor(np.array([4.0], np.float32)), tail)),
        lambda: [x, ops.range(0, x.shape[0] + 1, dtype=F32, out_dim=tail[0])],
    )


@pytest.mark.parametrize("pred", [True, False])
def test_one_of_two_functions_is_called(pred: bool) -> None:
    wanted = [X * 2 + 1, np.full(3, 4.0)] if pred else [X, np.arange(3.0)]
    for result in (
        chosen(Tensor(np.array(pred)), Tensor(X)),
        compiled(chosen, BOOL, ROWS)(np.array(pred), X),
    ):
        for left, right in zip(result, wanted, strict=True):
            np.testing.assert_array_equal(left, right)


def test_only_the_chosen_function_runs() -> None:
    called: list[str] = []

    def noting(name: str, x: Tensor) -> Callable[[], Tensor]:
        return lambda: (called.append(name), x)[1]

    x = Tensor(X)
    assert ops.cond(x.sum([0, 1])[0, 0] > 0, [x.type], noting("then", x), noting("else", x)) == [x]
    assert called == ["then"]


def test_a_function_may_return_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def said(pred: Tensor) -> Tensor:
        ops.cond(pred, None, lambda: ops.print(pred, "yes"), lambda: None)
        return pred

    run = compiled(said, BOOL)
    run(np.array(False))
    assert capsys.readouterr().out == ""
    run(np.array(True))
    assert capsys.readouterr().out.startswith("yes = tensor(True")


def powers(count: Tensor, x: Tensor) -> list[Tensor]:
    """``count``, and ``x`` doubled as often; it reads ``count`` from outside."""
    return ops.while_loop([0, x], lambda i, _: i < count, lambda i, y: (i + 1, y * 2.0))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 64])
def test_a_loop_runs_as_often_as_it_says(count: int) -> None:
    run = compiled(powers, INT64, ROWS)
    for result in (powers(Tensor(np.array(count)), Tensor(X)), run(np.array(count), X)):
        assert int(result[0]) == count
        np.testing.assert_array_equal(result[1], X * 2.0**count)


def test_a_long_loop_needs_no_more_frames() -> None:
    def counted(limit: Tensor) -> list[Tensor]:
        return ops.while_loop(Tensor(0, DType.int64), lambda i: i < limit, lambda i: i + 1)

    (result,) = compiled(counted, INT64)(np.array(100_000))
    assert int(result) == 100_000


def euclid(a: Tensor, b: Tensor) -> list[Tensor]:
    """The greatest common divisor, by a condition in a loop in a condition."""

    def step(a: Tensor, b: Tensor) -> list[Tensor]:
        larger = [a.type, b.type]
        return ops.cond(a > b, larger, lambda: [a - b, b], lambda: [a, b - a])

    def looped() -> Tensor:
        return ops.while_loop([a, b], lambda a, b: a != b, step)[0]

    positive = ops.logical_and(a > 0, b > 0)
    return ops.cond(positive, [a.type], looped, lambda: a + b)


@pytest.mark.parametrize(("a", "b"), [(12, 18), (7, 13), (5, 0), (0, 9), (40, 40)])
def test_they_nest(a: int, b: int) -> None:
    inputs = np.array(a), np.array(b)
    run = compiled(euclid, INT64, INT64)
    for result in (euclid(*map(Tensor, inputs)), run(*inputs)):
        assert int(result[0]) == np.gcd(a, b)


class Halting(Module):
    """A layer that is applied until the sum of squares is small; its weights are read inside."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Linear(3, 3, F32)
        self.other = Linear(3, 3, F32)

    def __call__(self, x: Tensor) -> Tensor:
        def step(y: Tensor) -> list[Tensor]:
            big = (y * y).sum([0, 1])[0, 0] > 50.0
            return ops.cond(big, [y.type], lambda: self.other(y), lambda: self.layer(y))

        return ops.while_loop(x, lambda y: (y * y).sum([0, 1])[0, 0] > 1.0, step)[0]


def test_branches_read_weights() -> None:
    module = Halting()
    halves, quarters = np.eye(3, dtype=np.float32) / 2, np.eye(3, dtype=np.float32) / 4
    module.load_state_dict({"layer.weight": halves, "other.weight": quarters})
    graph = Graph("main", module, [ROWS])
    run = executor.find_executor().compile(graph, module.state_dict())
    for scale in (0.0, 1.0, 5.0, 40.0):
        wanted = X * np.float32(scale)
        while (wanted**2).sum() > 1:
            wanted = wanted * (0.25 if (wanted**2).sum() > 50 else 0.5)
        (result,) = run(Tensor(X * np.float32(scale)))
        np.testing.assert_allclose(result.to_numpy(), wanted, rtol=1e-6)


def test_in_a_repeated_layer_each_call_reads_its_own_weights() -> None:
    first, second = Linear(3, 3, F32), Linear(3, 3, F32)
    for number, layer in enumerate((first, second)):
        layer.weight.name = f"layers.{number}.weight"

    def applied(x: Tensor) -> list[Tensor]:
        total = x.sum([0, 1])[0, 0]
        return ops.cond(total > 0.0, [x.type], lambda: first(x), lambda: x - 1.0)

    with Graph("main", input_types=[ROWS]) as graph:
        body = Graph("layer", applied, [ROWS], weight_prefix="layers.0.")
        x = graph.inputs[0]
        for number in range(2):
            (x,) = ops.call(body, x, prefix=f"layers.{number}.")
        graph.output(x)
    eye = np.eye(3, dtype=np.float32)
    weights = {"layers.0.weight": eye * 2, "layers.1.weight": eye * 5}
    run = executor.find_executor().compile(graph, weights)
    np.testing.assert_array_equal(run(Tensor(X))[0].to_numpy(), X * 10)
    np.testing.assert_array_equal(run(Tensor(-X))[0].to_numpy(), -X - 2)


def test_sizes_that_no_value_of_a_branch_has() -> None:
    """Tell sizes from values: a branch's values may have n + 1 and 2 * n only, or none."""

    def sized(pred: Tensor, x: Tensor) -> list[Tensor]:
        longer = ops.concat([x, x[:1]], axis=0)
        n = x.shape[0]
        kind = TensorType(F32, [n + 1])
        return ops.cond(pred, [kind], lambda: longer[:, 0], lambda: ops.range(0, n + 1, dtype=F32))

    run = compiled(sized, BOOL, ROWS)
    np.testing.assert_array_equal(run(np.array(True), X)[0], [0, 3, 0])
    np.testing.assert_array_equal(run(np.array(False), X)[0], [0, 1, 2])


def traced(call: Callable[..., Any], *types: TensorType) -> Graph:
    return Graph("main", call, types)


def test_what_is_not_one_bool() -> None:
    x = Tensor(X)
    for pred in (x, Tensor(np.array([True])), 1.0):
        with pytest.raises(ValueError, match=r"cond: the predicate is a bool of rank 0, not "):
            ops.cond(pred, [x.type], lambda: x, lambda: x)
    with pytest.raises(ValueError, match=r"while_loop: the predicate is a bool of rank 0, not flo"):
        ops.while_loop(x, lambda y: y, lambda y: y)
    with pytest.raises(ValueError, match="the predicate returns one bool, not 2 values"):
        traced(lambda x: ops.while_loop(x, lambda y: (y, y), lambda y: y), ROWS)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (lambda _: None, ValueError, r"then_fn returns nothing, not float32\[.*\]$"),
        (lambda x: (x, x), ValueError, r"then_fn returns float32.*, float32.*, not float32"),
        (lambda x: x[:1], ValueError, r"returns float32\[1, 3\], not float32\[(n|2), 3\]"),
        (lambda x: x.cast(DType.int32), ValueError, r"returns int32\[.*, not float32"),
        (lambda _: 3.0, TypeError, "then_fn returns tensors, not float"),
    ],
)
def test_other_results_than_were_said(
    known: bool, result: Callable[[Tensor], Any], error: type[Exception], message: str
) -> None:
    def call(pred: Tensor, x: Tensor) -> list[Tensor]:
        return ops.cond(pred, [x.type], lambda: result(x), lambda: x)

    with pytest.raises(error, match=message):
        call(Tensor(np.array(True)), Tensor(X)) if known else traced(call, BOOL, ROWS)


@pytest.mark.parametrize("known", [True, False])
def test_a_body_keeps_the_types(known: bool) -> None:
    def call(x: Tensor) -> list[Tensor]:
        return ops.while_loop(x, lambda y: y[0, 0] < 9.0, lambda y: ops.concat([y, y]))

    with pytest.raises(
        ValueError, match=r"while_loop: the body returns float32\[(4|2 \* n), 3\], n"
    ):
        call(Tensor(X)) if known else traced(call, ROWS)


def test_no_values() -> None:
    with pytest.raises(ValueError, match="there are no initial values"):
        ops.while_loop([], lambda: True, list)


def test_buffers_stay_outside() -> None:
    buffer = BufferType(F32, [2, 3])
    with pytest.raises(ValueError, match=r"cannot use .*a buffer stays outside of branches"):
        traced(lambda p, b: ops.cond(p, None, lambda: ops.print(b), lambda: None), BOOL, buffer)
    with pytest.raises(ValueError, match=r"buffer .* cannot be a value of a loop; copy it"):
        traced(lambda b: ops.while_loop(b, lambda y: y[0, 0] < 1.0, lambda y: y), buffer)


@pytest.mark.parametrize("pred", [True, False])
def test_a_size_that_both_branches_name_is_one_of_the_result(pred: bool) -> None:
    def call(pred: Tensor, x: Tensor) -> list[Tensor]:
        kind = TensorType(DType.int64, ["found", 2])
        return ops.cond(
            pred, [kind], lambda: ops.nonzero(x > 2, "found"), lambda: ops.nonzero(x < 2, "found")
        )

    (found,) = compiled(call, BOOL, ROWS)(np.array(pred), X)
    np.testing.assert_array_equal(found, np.argwhere(X > 2 if pred else X < 2))


def test_a_size_that_one_branch_names_is_not_that_of_the_other() -> None:
    def call(pred: Tensor, x: Tensor) -> list[Tensor]:
        kind = TensorType(DType.int64, ["found", 2])
        return ops.cond(
            pred, [kind], lambda: ops.nonzero(x, "found"), lambda: ops.nonzero(x, "other")
        )

    with pytest.raises(ValueError, match=r"else_fn returns int64\[other, 2\], not int64\[found"):
        traced(call, BOOL, ROWS)


def test_a_value_of_another_graph() -> None:
    with Graph("other", input_types=[ROWS]) as other:
        stranger = other.inputs[0] + 1.0
    with pytest.raises(ValueError, match="belongs to graph 'other'"):
        traced(lambda p: ops.cond(p, [ROWS], lambda: stranger, lambda: stranger), BOOL)
