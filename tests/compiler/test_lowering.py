"""Chains of elementwise operations, subgraphs, names: what becomes which function and kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.compiler.compiling_executor import Program
from maxtool.compiler.cpu_target import cpu_target
from maxtool.compiler.lowering.module_lowering import ModuleLowering
from maxtool.compiler.lowering.pointwise_rules import MAX_INPUTS, MAX_STEPS
from maxtool.compiler.lowering.rules import RULES
from maxtool.compiler.lowering_plan import LoweringPlan
from maxtool.compiler.targets import Targets
from maxtool.dtype import DType
from maxtool.errors import CompilationFailed
from maxtool.graph import BufferType, Graph, Tensor, TensorType, Weight, executor, ops

F32 = DType.float32
ROWS = TensorType(F32, ["n", 20])
TARGET = cpu_target()
rng = np.random.default_rng(0)

Call = Callable[..., Any]


def functions(*graphs: Graph) -> list[str]:
    """The functions and kernels that graphs become, by name, the graphs' own left out."""
    lowering = ModuleLowering(LoweringPlan(graphs, TARGET))
    for graph in graphs:
        lowering.entry(graph)
    own = {graph.name for graph in graphs}
    names = [str(name.name_hint) for name in lowering.module().functions]
    return sorted(name for name in names if name not in own)


def square_of_shared(x: Any, y: Any) -> Any:
    shared = x + y
    return shared * shared + shared


def used_twice(x: Any, y: Any) -> Any:
    shared = x + y
    return [shared * x, shared * y]


def long_chain(x: Any, y: Any) -> Any:
    for step in range(2 * MAX_STEPS + 3):
        x = x * 0.5 + y if step % 2 else x - y
    return x


def also_an_output(x: Any, y: Any) -> Any:
    shared = x * y
    return [shared, shared - 1.0]


def through_a_reshape(x: Any, y: Any) -> Any:
    return ((x + y).reshape([x.shape[0], 4, 5]) * 2.0).reshape([x.shape[0], 20]) - y


# What is computed, by tensors and NumPy arrays alike, and how many kernels it takes.
CHAINS: list[tuple[Call, int]] = [
    (lambda x, _: x * x, 1),
    (lambda x, y: x * x + y * x - x, 1),
    (lambda x, _: 1.0 / (2.0 - -x * 3.0 + x * x * 9.0), 1),
    (lambda x, y: x * 1.0 + 0.0 * y, 1),
    (square_of_shared, 2),
    (used_twice, 2),
    (also_an_output, 2),
    (through_a_reshape, 3),
    (long_chain, 2),
]


@pytest.mark.parametrize(("call", "kernels"), CHAINS)
def test_a_chain_is_one_kernel_within_the_limits(call: Call, kernels: int) -> None:
    assert len(functions(Graph("main", call, [ROWS, ROWS]))) == kernels


def test_chains_compute_what_numpy_does() -> None:
    def call(x: Any, y: Any) -> list[Any]:
        results = [one(x, y) for one, _ in CHAINS]
        return [
            part
            for result in results
            for part in (result if isinstance(result, list) else [result])
        ]

    x, y = rng.standard_normal((2, 3, 20)).astype(np.float32)
    run = executor.find_executor().compile(Graph("main", call, [ROWS, ROWS]), {})
    for got, wanted in zip(run(Tensor(x), Tensor(y)), call(x, y), strict=True):
        np.testing.assert_allclose(got.to_numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_a_chain_of_more_inputs_than_a_kernel_takes() -> None:
    def call(*inputs: Any) -> Any:
        total = inputs[0]
        for one in inputs[1:]:
            total = total * one + one
        return total

    graph = Graph("main", call, [ROWS] * (2 * MAX_INPUTS))
    assert len(functions(graph)) > 1
    arrays = rng.standard_normal((2 * MAX_INPUTS, 3, 20)).astype(np.float32)
    got = executor.find_executor().compile(graph, {})(*map(Tensor, arrays))[0]
    np.testing.assert_allclose(got.to_numpy(), call(*arrays), rtol=1e-4, atol=1e-5)


def test_kernels_that_differ_in_a_constant_are_not_shared() -> None:
    """1.0 is not an index 1, and 0.0 is not -0.0, though Python says they are equal."""

    def call(x: Tensor, y: Tensor) -> list[Tensor]:
        return [(x + y) * 1.0, (x + y) * y, 1.0 / (x * 0.0), 1.0 / (x * -0.0), x * float("nan")]

    graph = Graph("main", call, [ROWS, ROWS])
    assert len(functions(graph)) == 5
    x, y = np.full((1, 20), 2, np.float32), np.full((1, 20), 3, np.float32)
    got = executor.find_executor().compile(graph, {})(Tensor(x), Tensor(y))
    assert [one.to_numpy()[0, 0].item() for one in got[:4]] == [5, 15, np.inf, -np.inf]
    assert np.isnan(got[4].to_numpy()).all()


def test_equal_kernels_are_shared_by_functions() -> None:
    graphs = [Graph(name, lambda x: ops.silu(x) * 2.0, [ROWS]) for name in ("one", "two")]
    assert len(functions(*graphs)) == 1


BINARY: list[Call] = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, _: x * 0.5,
    lambda x, _: 1.0 - x,
    lambda _, y: -y,
]
steps = st.lists(
    st.tuples(st.sampled_from(BINARY), st.integers(0, 99), st.integers(0, 99)),
    min_size=1,
    max_size=40,
)


@given(steps, st.sets(st.integers(0, 99), max_size=4))
@settings(max_examples=12, deadline=None)
def test_any_expression(steps: list[tuple[Call, int, int]], outputs: set[int]) -> None:
    """Operands are any earlier values, the last ones more often; so are outputs, with repeats."""

    def call(x: Any, y: Any, z: Any) -> list[Any]:
        values = [x, y, z * 2.0]
        for op, left, right in steps:
            values.append(op(values[-1 - left % min(len(values), 4)], values[right % len(values)]))
        return [values[-1], *(values[output % len(values)] for output in outputs)]

    kinds = [ROWS, ROWS, TensorType(F32, ["n", 1])]
    arrays = rng.uniform(-1, 1, (3, 4, 20)).astype(np.float32)
    inputs = [arrays[0], arrays[1], arrays[2, :, :1].copy()]
    with np.errstate(all="ignore"):
        wanted = call(*inputs)
    got = executor.find_executor().compile(Graph("main", call, kinds), {})(*map(Tensor, inputs))
    for value, expected in zip(got, wanted, strict=True):
        scale = np.abs(np.where(np.isfinite(expected), expected, 0)).max() + 1
        np.testing.assert_allclose(value.to_numpy(), expected, rtol=1e-3, atol=1e-4 * scale)


def test_names_never_collide() -> None:
    """A graph, a subgraph and kernels that would all be called alike."""
    callee = Graph("add_20", lambda x: x + x, [ROWS])

    def call(x: Tensor) -> list[Tensor]:
        return [*ops.call(callee, x), x * 2.0, ops.exp(x)]

    for name in ("add_20", "exp", "mul_20", "a name with spaces"):
        program = Program([Graph(name, call, [ROWS])], Targets())
        kinds = [ROWS] * 3
        x = np.ones((2, 20), np.float32)
        got = program.function(name, program.bind({}), kinds)([Tensor(x)])
        assert [float(one.to_numpy()[0, 0]) for one in got[:2]] == [2, 2]


def test_a_subgraph_becomes_one_function_for_each_storage_of_its_weights() -> None:
    weights = [Weight(f"layers.{layer}.w", F32, [20, 20]) for layer in range(3)]
    callee = Graph("layer", lambda x: ops.linear(x, weights[0]), [ROWS], weight_prefix="layers.0.")

    def call(x: Tensor) -> Tensor:
        for layer in range(3):
            (x,) = ops.call(callee, x, prefix=f"layers.{layer}.")
        return x @ weights[2]  # which is therefore not packed

    graph = Graph("main", call, [ROWS])
    assert [name for name in functions(graph) if name.startswith("layer")] == ["layer", "layer_2"]
    values = {w.name: rng.standard_normal((20, 20)).astype(np.float32) for w in weights}
    x = rng.standard_normal((3, 20)).astype(np.float32)
    wanted = x
    for value in values.values():
        wanted = wanted @ value.T
    got = executor.find_executor().compile(graph, values)(Tensor(x))[0].to_numpy()
    np.testing.assert_allclose(got, wanted @ values["layers.2.w"], rtol=1e-3, atol=1e-2)


BUFFER = BufferType(F32, [1, 2, 4, 4])
POSITION = TensorType(DType.int32, [1])


def written(cache: Any, position: Any) -> Any:
    return ops.cache_write_key(cache, Tensor(np.ones((1, 2, 2, 4), np.float32)), position)


@pytest.mark.parametrize("results", [lambda x: x, lambda x: [x, x]])
def test_what_a_subgraph_hands_through_is_the_buffer_itself(results: Call) -> None:
    inner = Graph("inner", results, [BUFFER])

    def forward(cache: Any, position: Any) -> Any:
        graph = Graph.current()
        assert graph is not None
        same = graph.call(inner, cache)
        doubled = same[-1] * 2.0
        after = written(same[0], position)
        for stale in (cache, *same):
            with pytest.raises(ValueError, match="overwritten"):
                graph.output(stale)
        return [doubled, after]

    graph = Graph("main", forward, [BUFFER, POSITION])
    old = rng.standard_normal((1, 2, 4, 4)).astype(np.float32)
    cache = Tensor(old.copy())
    doubled, after = executor.find_executor().compile(graph, {})(
        cache, Tensor(np.array([1], np.int32))
    )
    np.testing.assert_array_equal(doubled.to_numpy(), old * 2)
    expected = old.copy()
    expected[..., 1:3] = 1
    np.testing.assert_array_equal(after.to_numpy(), expected)
    np.testing.assert_array_equal(cache.to_numpy(), expected)


def test_nothing_is_read_while_it_is_overwritten() -> None:
    square = BufferType(F32, [2, 2, 2, 2])
    with pytest.raises(ValueError, match="reads it too"):
        Graph("main", lambda x, p: ops.cache_write_key(x, x, p), [square, POSITION])
    inner = Graph("inner", lambda x, y, p: written(x, p) + y, [BUFFER, BUFFER, POSITION])
    with pytest.raises(ValueError, match="reads it too"):
        Graph("main", lambda x, p: Graph.current().call(inner, x, x, p), [BUFFER, POSITION])  # type: ignore[union-attr]


def test_symbolic_sizes_are_those_of_each_function() -> None:
    callee = Graph("inner", lambda x: ops.tanh(x * 2.0), [ROWS])

    def call(x: Tensor, y: Tensor) -> list[Tensor]:
        return [*ops.call(callee, x), x[:, 0] + y]

    run = executor.find_executor().compile(Graph("main", call, [ROWS, TensorType(F32, ["n"])]), {})
    for n in (1, 7, 0, 3):
        x, y = np.ones((n, 20), np.float32), np.arange(n, dtype=np.float32)
        first, second = run(Tensor(x), Tensor(y))
        np.testing.assert_allclose(first.to_numpy(), np.tanh(2 * x), rtol=1e-6)
        np.testing.assert_array_equal(second.to_numpy(), 1 + y)


def test_an_operation_without_a_kernel_is_one_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """TVM would complain on stderr of what it was building."""

    def refuse(_function: object, _node: object) -> None:
        raise CompilationFailed("no kernel for relu")

    monkeypatch.setitem(RULES, "relu", refuse)
    graph = Graph("g", lambda x: ops.relu(x + 1.0), [TensorType(DType.float32, ["n"])])
    with pytest.raises(CompilationFailed, match="no kernel for relu"):
        executor.find_executor().compile(graph, {})
    assert not capfd.readouterr().err
