"""Loading graphs with a registry of weights, and running them: every check of the inputs."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from maxtool.driver import CPU
from maxtool.dtype import DType
from maxtool.engine import InferenceSession, Model
from maxtool.errors import MachineLacks, MisshapenWeight, MissingWeight
from maxtool.graph import (
    BufferType,
    DerivedWeight,
    DeviceRef,
    Graph,
    ShardingStrategy,
    Tensor,
    TensorType,
    Weight,
    ops,
)
from maxtool.graph.weights import load_weights
from maxtool.nn import LayerList, Linear, Module, Sequential
from maxtool.parity.activation_rounding import rounded
from maxtool.quantization import QuantizationEncoding, quantize
from maxtool.weights.weight_data import WeightData

Array = np.ndarray[Any, Any]

F32 = DType.float32
W = np.arange(15, dtype=np.float32).reshape(5, 3)
B = np.ones(3, np.float32)
REGISTRY = {"w": W, "b": B}


def linear() -> Graph:
    w, b = Weight("w", F32, [5, 3], DeviceRef.CPU()), Weight("b", F32, [3], DeviceRef.CPU())
    with Graph("linear", input_types=[TensorType(F32, ["batch", 5])]) as graph:
        graph.output(ops.relu(graph.inputs[0].tensor @ w + b))
    return graph


@pytest.fixture(scope="module")
def model() -> Model:
    return InferenceSession(devices=[CPU()]).load(linear(), weights_registry=REGISTRY)


@pytest.mark.parametrize("batch", [1, 4, 0])
def test_it_runs(model: Model, batch: int) -> None:
    x = np.random.default_rng(0).standard_normal((batch, 5), np.float32)
    (result,) = model.execute(x)
    np.testing.assert_allclose(result.to_numpy(), np.maximum(x @ W + B, 0), rtol=1e-5)
    np.testing.assert_array_equal(model(Tensor(x))[0].to_numpy(), result.to_numpy())


@pytest.mark.parametrize(
    ("inputs", "what"),
    [
        ([np.ones((2, 6), np.float32)], r"'0': expected float32\[batch, 5\], got float32\[2, 6\]"),
        ([np.ones(5, np.float32)], r"got float32\[5\]"),
        ([np.ones((2, 5))], r"got float64\[2, 5\]"),
        ([[1.0]], r"expected float32\[batch, 5\], got \[float\]"),
        ([], "takes 1 arguments"),
        ([np.ones((2, 5), np.float32)] * 2, "takes 1 arguments"),
    ],
)
def test_inputs_that_do_not_fit(model: Model, inputs: list[Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        model.execute(*inputs)


def test_a_symbolic_dimension_is_one_size() -> None:
    kinds = [TensorType(F32, ["n", 2]), TensorType(F32, ["n", 2])]
    model = InferenceSession().load(Graph("add", lambda x, y: x + y, kinds))
    with pytest.raises(ValueError, match="'1': expected 'n' to be 2 as in '0', got 3"):
        model.execute(np.ones((2, 2), np.float32), np.ones((3, 2), np.float32))
    assert repr(model) == "Model('add', [float32[n, 2], float32[n, 2]])"
    assert model.output_types == (TensorType(F32, ["n", 2]),)


def test_a_dimension_that_is_too_small() -> None:
    model = InferenceSession().load(Graph("last", lambda x: x[-1], [TensorType(F32, ["n"])]))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        model.execute(np.ones(0, np.float32))


def test_a_buffer_is_written_in_place() -> None:
    kinds = [
        BufferType(F32, [1, 1, 4, 8]),
        TensorType(F32, [1, 1, 1, 4]),
        TensorType(DType.int32, [1]),
    ]
    model = InferenceSession().load(Graph("write", ops.cache_write_key, kinds))
    cache = np.zeros((1, 1, 4, 8), np.float32)
    model.execute(cache, np.ones((1, 1, 1, 4), np.float32), np.array([2], np.int32))
    assert cache[..., 2].all() and cache.sum() == 4


# Weights


@pytest.mark.parametrize("registry", [None, {}, {"w": W, "bb": B}])
def test_a_weight_that_is_missing(registry: dict[str, Any] | None) -> None:
    with pytest.raises(MissingWeight, match=r"'b' is missing") as caught:
        InferenceSession().load(linear(), weights_registry=registry)
    assert isinstance(caught.value, ValueError)
    assert ("did you mean 'bb'" in str(caught.value)) == bool(registry)


def test_more_weights_than_needed() -> None:
    InferenceSession().load(linear(), weights_registry={**REGISTRY, "more": B})


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"w": W.T}, r"'w' is float32\[3, 5\], declared float32\[5, 3\]"),
        ({"w": W.astype(np.float64)}, r"'w' is float64\[5, 3\]"),
        ({"b": B[:2]}, r"'b' is float32\[2\]"),
    ],
)
def test_values_that_do_not_fit(wrong: dict[str, Any], what: str) -> None:
    with pytest.raises(MisshapenWeight, match=what):
        InferenceSession().load(linear(), weights_registry={**REGISTRY, **wrong})


def test_a_value_that_is_none() -> None:
    with pytest.raises(ValueError, match="weight 'b': a list"):
        InferenceSession().load(linear(), weights_registry={"w": W, "b": [1.0]})  # type: ignore[dict-item]


def test_loaded_values_do_without_a_registry() -> None:
    weight = Weight("w", F32, [2])
    weight.bind(np.array([1, 2], np.float32))
    twice = DerivedWeight("d", F32, [2], lambda: np.array([10, 10], np.float32))
    graph = Graph("g", lambda x: x * weight + twice, [TensorType(F32, ["n", 2])])
    x = np.ones((1, 2), np.float32)
    session = InferenceSession()
    assert session.load(graph)(x)[0].to_numpy().tolist() == [[11, 12]]
    other = {"w": np.array([3, 3], np.float32)}
    assert session.load(graph, weights_registry=other)(x)[0].to_numpy().tolist() == [[13, 13]]
    with pytest.raises(MissingWeight, match="'w' is missing"):
        session.load(graph, weights_registry={})


def test_what_happens_to_values_later_changes_nothing() -> None:
    values = B.copy()
    model = InferenceSession().load(linear(), weights_registry={"w": W, "b": values})
    values[:] = 100
    assert model(np.zeros((1, 5), np.float32))[0].to_numpy().tolist() == [[1, 1, 1]]


def test_encoded_weights_of_a_checkpoint(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32)
    safetensors.numpy.save_file({"up.weight": rows}, tmp_path / "x.safetensors")
    weights = load_weights([tmp_path / "x.safetensors"])
    with Graph("g", input_types=[TensorType(F32, ["n", 32])]) as graph:
        up = weights.up.weight.allocate(quantization_encoding=QuantizationEncoding.Q8_0)
        graph.output(graph.inputs[0] @ graph.add_weight(up).T)
    for registry in (weights.allocated_weights, None):
        model = InferenceSession().load(graph, weights_registry=registry)
        x = np.eye(32, dtype=np.float32)
        np.testing.assert_allclose(model(x)[0].to_numpy(), rows.T, atol=0.02)


def test_weights_of_subgraphs_by_prefix() -> None:
    kind = TensorType(F32, ["n", 2])
    weight = Weight("layers.0.w", F32, [2])
    graph = Graph("g", input_types=[kind])
    block = graph.add_subgraph("block", lambda x: x + weight, [kind], weight_prefix="layers.0.")
    with graph:
        h = graph.inputs[0]
        for layer in range(2):
            h = ops.call(block, h, prefix=f"layers.{layer}.")[0].tensor
        graph.output(h)
    values = {f"layers.{layer}.w": np.full(2, layer + 1, np.float32) for layer in range(2)}
    model = InferenceSession().load(graph, weights_registry=values)
    assert model(np.zeros((1, 2), np.float32))[0].to_numpy().tolist() == [[3, 3]]
    with pytest.raises(MissingWeight, match=r"'layers\.1\.w' is missing"):
        InferenceSession().load(graph, weights_registry={"layers.0.w": values["layers.0.w"]})


class Block(Module):
    def __init__(self, encoding: QuantizationEncoding | None = None) -> None:
        self.w = Weight("w", F32, [4, 32], quantization_encoding=encoding)

    def __call__(self, x: Tensor) -> Tensor:
        return x + (x @ self.w.T).sum()


class Blocks(Module):
    """Two blocks, each called twice by the subgraph of the first: once by itself, once nested."""

    def __init__(self, encoding: QuantizationEncoding | None = None) -> None:
        self.layers = LayerList([Block(encoding), Block(encoding)])

    def __call__(self, x: Tensor) -> Tensor:
        inner = self.layers[0].build_subgraph("block", [x.type], "layers.0.")
        outer = Graph("outer", input_types=[x.type], weight_prefix="layers.0.")
        with outer:
            outer.output(*ops.call(inner, outer.inputs[0], prefix="layers.0."))
        for layer in range(2):
            for block in (inner, outer):
                (x,) = ops.call(block, x, prefix=f"layers.{layer}.")
        return x

    @staticmethod
    def expected(x: Array, weights: Sequence[Array], rounds: bool = False) -> Array:
        for weight in weights:
            for _ in range(2):
                multiplied = rounded(x, 32) if rounds else x
                x = x + (multiplied @ weight.T).sum(-1, keepdims=True)
        return x


ROWS = [
    0.01 * row.standard_normal((4, 32), np.float32) for row in map(np.random.default_rng, (1, 2))
]
TWO = np.random.default_rng(0).standard_normal((2, 32)).astype(np.float32)


def encoded(name: str, values: Array, encoding: QuantizationEncoding) -> WeightData:
    return WeightData(quantize(values, encoding), name, F32, values.shape, encoding)


def assert_blocks(model: Model, weights: Sequence[Array], rounds: bool = False) -> None:
    result = model(TWO)[0].to_numpy()
    np.testing.assert_allclose(result, Blocks.expected(TWO, weights, rounds), rtol=1e-4, atol=1e-4)


@pytest.mark.long
def test_weights_of_called_subgraphs_do_without_a_registry() -> None:
    blocks = Blocks()
    blocks.load_state_dict({f"layers.{i}.w": one for i, one in enumerate(ROWS)})
    graph = Graph("g", blocks, [TensorType(F32, ["n", 32])])
    assert_blocks(InferenceSession().load(graph), ROWS)
    copy = deepcopy(blocks)
    copy.load_state_dict({f"layers.{i}.w": one for i, one in enumerate(reversed(ROWS))})
    del blocks  # the graph keeps what it needs
    gc.collect()
    assert_blocks(InferenceSession().load(graph), ROWS)
    again = Graph("g", copy, [TensorType(F32, ["n", 32])])
    assert_blocks(InferenceSession().load(again), ROWS[::-1])


def test_a_copied_tree_never_has_the_weights_of_the_other() -> None:
    blocks = Blocks()
    blocks.load_state_dict({f"layers.{i}.w": one for i, one in enumerate(ROWS)})
    for copy in (deepcopy(blocks), pickle.loads(pickle.dumps(blocks))):  # noqa: S301
        graph = Graph("g", copy, [TensorType(F32, ["n", 32])])
        with pytest.raises(MissingWeight, match=r"'layers\.1\.w' is missing"):
            InferenceSession().load(graph)
        assert_blocks(InferenceSession().load(graph, weights_registry=copy.state_dict()), ROWS)


def test_elements_of_a_weight_declared_encoded() -> None:
    """Declare elements, not blocks: they are never taken for blocks, whose kernels round."""
    weight = Weight("w", F32, [4, 32], quantization_encoding=QuantizationEncoding.Q8_0)
    graph = Graph("g", lambda x: x @ weight.T, [TensorType(F32, ["n", 32])])
    data = encoded("w", ROWS[0], QuantizationEncoding.Q8_0)
    for value, rows, x in (
        (ROWS[0], ROWS[0], TWO),
        (data.data, data.astype(F32).data, rounded(TWO, 32)),
    ):
        model = InferenceSession().load(graph, weights_registry={"w": value})
        np.testing.assert_allclose(model(TWO)[0].to_numpy(), x @ rows.T, rtol=1e-4, atol=1e-5)
    wide = np.zeros((4, 34), np.float32)
    with pytest.raises(MisshapenWeight, match=r"float32\[4, 34\], declared float32\[4, 32\]"):
        InferenceSession().load(graph, weights_registry={"w": wide})


class Linears(Module):
    def __init__(self) -> None:
        self.layers = LayerList([Linear(32, 32), Linear(32, 32)])

    def __call__(self, x: Tensor) -> Tensor:
        block = self.layers[0].build_subgraph("block", [x.type], "layers.0.")
        for layer in range(2):
            (x,) = ops.call(block, x, prefix=f"layers.{layer}.")
        return x


@pytest.mark.parametrize("axis", [0, 1, None])
def test_split_weights_of_called_subgraphs(axis: int | None) -> None:
    devices = [DeviceRef.CPU(0), DeviceRef.CPU(1)]
    whole = ShardingStrategy.replicate(2)
    split = whole if axis is None else ShardingStrategy.axiswise(axis, 2)
    left, right = (np.tile(rows, (8, 1)) for rows in ROWS)
    linears = Linears()
    linears.to(*devices, sharding_strategy=split)
    linears.load_state_dict({"layers.0.weight": left, "layers.1.weight": right})
    graph = Graph("g", linears, [TensorType(F32, ["n", 32])])
    for registry in (None, linears.state_dict()):
        model = InferenceSession(devices).load(graph, weights_registry=registry)
        expected = TWO @ left.T @ right.T
        np.testing.assert_allclose(model(TWO)[0].to_numpy(), expected, rtol=1e-3, atol=1e-5)


def test_encoded_weights_of_called_subgraphs() -> None:
    q8_0, q4_0 = QuantizationEncoding.Q8_0, QuantizationEncoding.Q4_0
    for declared, encodings in ((q8_0, (q8_0, q8_0)), (q4_0, (q4_0, q8_0))):
        blocks = Blocks(declared)
        names = [f"layers.{i}.w" for i in range(2)]
        data = [encoded(*each) for each in zip(names, ROWS, encodings, strict=True)]
        state = dict(zip(names, data, strict=True))
        blocks.load_state_dict(state, override_quantization_encoding=True)
        graph = Graph("g", blocks, [TensorType(F32, ["n", 32])])
        weights = [datum.astype(F32).data for datum in data]
        for registry in (blocks.state_dict(), None):
            model = InferenceSession().load(graph, weights_registry=registry)
            assert_blocks(model, weights, rounds=True)


@pytest.mark.parametrize(
    "name", ["my.model", "", "vm.builtin.copy", "entry_0", 'a "b"\0', "\ud800"]
)
def test_a_graph_has_any_name(name: str) -> None:
    kind = TensorType(F32, ["n", 2])
    inner = Graph(name, lambda x: x * 2, [kind])
    outer = Graph("outer", lambda x: ops.call(inner, x), [kind])
    for graph in (inner, outer):
        model = InferenceSession().load(graph)
        assert model(np.ones((1, 2), np.float32))[0].to_numpy().tolist() == [[2, 2]]


# Devices


def test_a_graph_without_outputs() -> None:
    with pytest.raises(ValueError, match="'g' returns nothing"):
        InferenceSession().load(Graph("g", input_types=[TensorType(F32, [1])]))


def test_a_device_the_session_does_not_have() -> None:
    graph = Graph("g", lambda x: x.to(CPU(1)) + 1.0, [TensorType(F32, [1])])
    with pytest.raises(ValueError, match="uses cpu:1; the session has cpu:0"):
        InferenceSession().load(graph)
    session = InferenceSession(devices=[DeviceRef.CPU(1)])
    assert session.devices == (CPU(), CPU(1))
    (result,) = session.load(graph)(np.ones(1, np.float32))
    assert (result.device, result.to_numpy().tolist()) == (CPU(1), [2])


def test_a_device_the_machine_does_not_have() -> None:
    with pytest.raises(MachineLacks, match="no gpu:97 here"):
        InferenceSession(devices=[DeviceRef.GPU(97)])


# Modules


class Scale(Module[[Tensor], Tensor]):
    def __init__(self) -> None:
        self.weight = Weight("weight", F32, [2])

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.weight
        y.print("y")
        return y


class Stack(Module[[Tensor], Tensor]):
    def __init__(self) -> None:
        self.layers = Sequential(Scale(), Scale())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def test_a_module_prints_whichever_way_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    stack, kind = Stack(), TensorType(F32, ["n", 2])
    state = {f"layers.{i}.weight": np.full(2, i + 2, np.float32) for i in range(2)}
    stack.load_state_dict(state)
    x = np.ones((1, 2), np.float32)
    ways = (
        stack,
        stack.compile(kind),
        InferenceSession().load(Graph("g", stack, [kind])),
        InferenceSession().load(Graph("g", stack, [kind]), weights_registry=stack.state_dict()),
    )
    for way in ways:
        way(Tensor(x))
        assert capsys.readouterr().out.splitlines() == [
            "y = tensor([[2., 2.]], dtype=float32, shape=[1, 2])",
            "y = tensor([[6., 6.]], dtype=float32, shape=[1, 2])",
        ]
