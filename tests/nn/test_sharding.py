"""Weights split over devices; parts of the host stand in for several of them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize, quantize
from hypothesis import given
from hypothesis import strategies as st

from maxtool import nn
from maxtool.dtype import DType
from maxtool.engine import InferenceSession
from maxtool.errors import MachineLacks
from maxtool.graph import DeviceRef, Graph, Shard, ShardingStrategy, Tensor, TensorType, Weight, ops
from maxtool.nn.layer import LayerList, LayerV2
from maxtool.nn.tracing import trace
from maxtool.quantization import QuantizationEncoding

Array = np.ndarray[Any, Any]
DEVICES = [DeviceRef.CPU(0), DeviceRef.CPU(1), DeviceRef.CPU(2)]
ROWS = TensorType(DType.float32, ["rows", 8])


def random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def bound(data: Array, name: str = "w") -> Weight:
    weight = Weight(name, DType.from_numpy(data.dtype), data.shape)
    weight.bind(data)
    return weight


# the parts


@given(st.data())
def test_parts_are_those_of_array_split(data: Any) -> None:
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    axis = data.draw(st.integers(0, len(shape) - 1))
    count = data.draw(st.integers(1, min(3, shape[axis])))
    weight = bound(random(*shape))
    weight.place(DEVICES[:count], ShardingStrategy.axiswise(axis, count))
    expected = np.array_split(weight.to_numpy(), count, axis)
    for shard, part in zip(weight.shards, expected, strict=True):
        np.testing.assert_array_equal(shard.to_numpy(), part)
        assert shard.shape == part.shape
        assert np.shares_memory(shard.to_numpy(), weight.to_numpy())


def test_strategies_say_what_they_are() -> None:
    rows, columns = ShardingStrategy.rowwise(2), ShardingStrategy.columnwise(2)
    whole = ShardingStrategy.replicate(2)
    kinds = [(one.is_rowwise, one.is_colwise, one.is_replicate) for one in (rows, columns, whole)]
    assert kinds == [(True, False, False), (False, True, False), (False, False, True)]
    assert {one.num_devices for one in (rows, columns, whole)} == {2}
    for wrong in (lambda: ShardingStrategy.rowwise(0), lambda: ShardingStrategy.axiswise(-1, 2)):
        with pytest.raises(ValueError, match="0"):
            wrong()


def test_a_replicated_weight_is_whole_everywhere() -> None:
    weight = bound(random(3, 4))
    weight.place(DEVICES[:2], ShardingStrategy.replicate(2))
    for device in DEVICES[:2]:
        shard = weight.shard(device)
        assert (shard.device, shard.shape) == (device, weight.shape)
        assert shard.to_numpy() is weight.to_numpy()


def test_shards_follow_their_weight() -> None:
    weight = Weight("w", DType.float32, [4, 6], sharding_strategy=ShardingStrategy.columnwise(2))
    first, second = weight.shard(DEVICES[:2])
    assert [shard.name for shard in (first, second)] == ["w[0]", "w[1]"]
    weight.name, weight.shape, weight.dtype = "layer.w", [4, 5], DType.float16
    assert (second.name, second.dtype, second.shape) == ("layer.w[1]", DType.float16, [4, 2])
    assert not first.is_bound
    weight.bind(np.ones((4, 5), np.float16))
    assert first.is_bound
    assert weight.shard(DEVICES[:2]) == [first, second]
    assert weight.shard(DEVICES[1]) is second
    weight.sharding_strategy = ShardingStrategy.rowwise(2)
    assert [shard.shape for shard in weight.shard(DEVICES[:2])] == [[2, 5], [2, 5]]


@pytest.mark.parametrize("axis", [0, 1])
def test_blocks_are_not_cut(axis: int) -> None:
    values = random(5, 96)
    packed = quantize(values, gguf.GGMLQuantizationType.Q8_0)
    encoding = QuantizationEncoding.Q8_0
    weight = Weight("w", DType.float32, values.shape, quantization_encoding=encoding)
    weight.bind(packed)
    weight.place(DEVICES[:2], ShardingStrategy.axiswise(axis, 2))
    parts = [shard.to_numpy() for shard in weight.shards]
    assert [tuple(shard.shape) for shard in weight.shards] == [
        [(3, 96), (2, 96)],
        [(5, 64), (5, 32)],
    ][axis]
    decoded = [dequantize(part, gguf.GGMLQuantizationType.Q8_0) for part in parts]
    whole = dequantize(packed, gguf.GGMLQuantizationType.Q8_0)
    np.testing.assert_array_equal(np.concatenate(decoded, axis), whole)


WRONG = {
    "too few rows": (Weight("w", DType.float32, [1, 8]), "rowwise", "1 elements"),
    "no such dimension": (Weight("w", DType.float32, [8]), "columnwise", "no dimension 1"),
    "a symbolic dimension": (Weight("w", DType.float32, ["n", 8]), "rowwise", "not known"),
    "one block": (
        Weight("w", DType.float32, [8, 32], None, QuantizationEncoding.Q8_0),
        "columnwise",
        "blocks of 32",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_split_is_an_error(case: str) -> None:
    weight, kind, message = WRONG[case]
    weight.sharding_strategy = getattr(ShardingStrategy, kind)(2)
    with pytest.raises(ValueError, match=rf"'w'.*{message}"):
        weight.shard(DEVICES[:2])


def test_a_weight_changed_so_that_it_cannot_be_split_is_named() -> None:
    weight = bound(random(4, 4))
    weight.place(DEVICES[:2], ShardingStrategy.rowwise(2))
    weight.shape = [1, 4]
    for use in (lambda: weight.shards[0].shape, lambda: weight.shards[0].to_numpy()):
        with pytest.raises(ValueError, match="'w': 1 elements"):
            use()


def test_copies_have_parts_of_their_own() -> None:
    model = Parallel()
    model.to(*DEVICES[:2], sharding_strategy=ShardingStrategy.rowwise(2))
    state = loaded(model)
    x = random(2, 8)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301
        assert copied.weight.shards[0].whole is copied.weight
        result = copied.compile(ROWS)(x).to_numpy()
        expected = parallel_in_numpy(x, *state.values())
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_devices_must_be_those_of_the_strategy() -> None:
    weight = bound(random(4, 4))
    with pytest.raises(ValueError, match=r"no part on cpu:0: it is not split"):
        weight.shard(DEVICES[0])
    with pytest.raises(ValueError, match="no sharding strategy"):
        weight.shard(DEVICES)
    weight.place(DEVICES[:2], ShardingStrategy.rowwise(2))
    with pytest.raises(ValueError, match=r"cpu:2: its parts are on cpu:0, cpu:1"):
        weight.shard(DEVICES[2])
    for wrong in (DEVICES, [], [DEVICES[0], DEVICES[0]]):
        with pytest.raises(ValueError, match="split over 2 devices"):
            weight.shard(wrong)


# trees


class Parallel(LayerV2):
    """Rows of a matrix on each device, and the sum of all results."""

    def __init__(self) -> None:
        self.weight = Weight("weight", DType.float32, [5, 8])
        self.norm = nn.RMSNorm(8)

    def __call__(self, x: Tensor) -> Tensor:
        parts = [
            ops.sum(ops.linear(ops.transfer_to(x, shard.device), shard), -1)
            for shard in self.weight.shards
        ]
        home = [ops.transfer_to(part, x.device) for part in parts]
        return self.norm(x * (home[0] + home[1]))


def parallel_in_numpy(x: Array, weight: Array, norm: Array) -> Array:
    scaled = x * (x @ weight.T).sum(-1, keepdims=True)
    result: Array = scaled / np.sqrt((scaled**2).mean(-1, keepdims=True) + 1e-6) * norm
    return result


def loaded(model: nn.Module, *, seed: int = 0) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    shapes = {name: weight.shape.static() for name, weight in model.raw_state_dict().items()}
    state = {name: generator.normal(size=s).astype(np.float32) for name, s in shapes.items()}
    model.load_state_dict(state)
    return state


def test_a_layer_computes_with_the_parts_of_its_weight() -> None:
    model = Parallel()
    model.to(*DEVICES[:2], sharding_strategy=ShardingStrategy.rowwise(2))
    state = loaded(model)
    graph = Graph("parallel", model, [ROWS])
    names = {name: tuple(value.shape) for name, value in graph.weight_values.items()}
    assert names == {"weight[0]": (3, 8), "weight[1]": (2, 8), "norm.weight[0]": (8,)}
    assert graph.weight_values["weight[1]"].device == DEVICES[1]
    x = random(3, 8)
    expected = parallel_in_numpy(x, *state.values())
    np.testing.assert_allclose(model.compile(ROWS)(x).to_numpy(), expected, rtol=1e-4, atol=1e-5)
    other = {name: 2 * value for name, value in state.items()}
    compiled = model.compile(ROWS, weights=other)
    expected = parallel_in_numpy(x, *other.values())
    np.testing.assert_allclose(compiled(x).to_numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_session_cuts_what_its_registry_has() -> None:
    model = Parallel()
    model.to(*DEVICES[:2], sharding_strategy=ShardingStrategy.rowwise(2))
    state = loaded(model)
    session = InferenceSession(devices=DEVICES[:2])
    graph = Graph("parallel", model, [ROWS])
    x = random(2, 8)
    expected = parallel_in_numpy(x, *state.values())
    for registry in (model.state_dict(), None):
        (result,) = session.load(graph, weights_registry=registry)(x)
        np.testing.assert_allclose(result.to_numpy(), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(KeyError, match="'weight' is missing"):
        session.load(graph, weights_registry={"norm.weight": state["norm.weight"]})


def test_equal_layers_share_a_subgraph_and_have_parts_of_their_own() -> None:
    class Stack(LayerV2):
        def __init__(self) -> None:
            self.layers = LayerList([Parallel() for _ in range(4)])

        def __call__(self, x: Tensor) -> Tensor:
            return self.layers(x)

    model = Stack()
    model.to(*DEVICES[:2], sharding_strategy=ShardingStrategy.rowwise(2))
    model.layers[3].to(DEVICES[0], DEVICES[2], sharding_strategy=ShardingStrategy.rowwise(2))
    state = loaded(model)
    assert len(trace(model, "main", [ROWS]).subgraphs) == 2  # the last is on other devices
    x = expected = random(2, 8)
    for index in range(4):
        weights = [state[f"layers.{index}.{name}"] for name in ("weight", "norm.weight")]
        expected = parallel_in_numpy(expected, *weights)
    np.testing.assert_allclose(model.compile(ROWS)(x).to_numpy(), expected, rtol=1e-4, atol=1e-5)
    session = InferenceSession(devices=DEVICES)
    graph = trace(model, "main", [ROWS])
    (result,) = session.load(graph, weights_registry=model.state_dict())(x)
    np.testing.assert_allclose(result.to_numpy(), expected, rtol=1e-4, atol=1e-5)


def test_to_places_every_weight() -> None:
    model = Parallel()
    model.to(DEVICES[1])
    assert {weight.device for weight in model.raw_state_dict().values()} == {DEVICES[1]}
    model.to(*DEVICES[:2], sharding_strategy=ShardingStrategy.columnwise(2))
    assert [tuple(shard.shape) for shard in model.weight.shards] == [(5, 4), (5, 4)]
    assert [tuple(shard.shape) for shard in model.norm.weight.shards] == [(8,), (8,)]
    assert all(isinstance(shard, Shard) for shard in model.weight.shards)
    model.to(*DEVICES[:2], sharding_strategy=ShardingStrategy.rowwise(2))
    assert [tuple(shard.shape) for shard in model.norm.weight.shards] == [(8,), (8,)]
    model.to(DEVICES[0])
    assert not model.weight.shards
    assert list(model.state_dict()) == ["weight", "norm.weight"]


def test_a_weight_with_a_strategy_on_an_attribute_is_no_parameter() -> None:
    model = Parallel()
    model.to(*DEVICES[:2], sharding_strategy=ShardingStrategy.rowwise(2))
    model.mine = model.weight.shard(DEVICES[1])  # type: ignore[attr-defined]
    assert list(model.state_dict()) == ["weight", "norm.weight"]


def test_to_moves_plain_tensors_too() -> None:
    model = Parallel()
    model.table = Tensor.ones([2])  # type: ignore[attr-defined]
    with pytest.raises(MachineLacks, match="gpu:0"):
        model.to(DeviceRef.GPU(0))
    assert model.weight.device == DEVICES[0]
    model.to(DEVICES[1])
    assert model.table.device == model.weight.device == DEVICES[1]  # type: ignore[attr-defined]


def test_to_changes_everything_or_nothing() -> None:
    model = Parallel()
    model.other = Weight("other", DType.float32, [1, 8])  # type: ignore[attr-defined]
    model.last = nn.Linear(8, 1)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"(?s)'other': 1 elements.*'last.weight': 1 elements"):
        model.to(*DEVICES[:2], sharding_strategy=ShardingStrategy.rowwise(2))
    assert not model.weight.shards
    assert model.weight.device == DEVICES[0]
    rows = ShardingStrategy.rowwise(2)
    cases: list[tuple[Any, ...]] = [
        ((), None, ValueError, "none"),
        ((DEVICES[0], DEVICES[0]), rows, ValueError, "differ"),
        (tuple(DEVICES), rows, ValueError, "for 2 devices"),
        (tuple(DEVICES[:2]), None, ValueError, "sharding_strategy"),
        (("cpu",), None, TypeError, "'cpu'"),
    ]
    for devices, strategy, kind, message in cases:
        with pytest.raises(kind, match=message):
            model.to(*devices, sharding_strategy=strategy)
