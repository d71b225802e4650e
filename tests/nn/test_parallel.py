"""Layers whose weights are split compute what they compute whole."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize, quantize

from maxtool import nn
from maxtool.dtype import DType
from maxtool.graph import DeviceRef, ShardingStrategy, Tensor, TensorType, ops
from maxtool.nn.tracing import trace
from maxtool.quantization import QuantizationEncoding
from tests.effort import thinned

Array = np.ndarray[Any, Any]
DEVICES = [DeviceRef.CPU(index) for index in range(3)]
STRATEGIES = {
    "rows": ShardingStrategy.rowwise,
    "columns": ShardingStrategy.columnwise,
    "copies": ShardingStrategy.replicate,
}


def random(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def split(layer: nn.Module, kind: str, count: int) -> None:
    layer.to(*DEVICES[:count], sharding_strategy=STRATEGIES[kind](count))


@pytest.mark.parametrize("has_bias", thinned([True, False], True))
@pytest.mark.parametrize("count", thinned([1, 3], 3))
@pytest.mark.parametrize("kind", STRATEGIES)
def test_linear(kind: str, count: int, has_bias: bool) -> None:
    layer = nn.Linear(7, 5, has_bias=has_bias)
    split(layer, kind, count)
    state = {"weight": random(5, 7), **({"bias": random(5)} if has_bias else {})}
    layer.load_state_dict(state)
    x = random(2, 3, 7)
    expected = x @ state["weight"].T + state.get("bias", 0)
    np.testing.assert_allclose(layer(Tensor(x)).to_numpy(), expected, rtol=1e-4, atol=1e-5)
    graph = trace(layer, "main", [TensorType(DType.float32, ["batch", "seq", 7])])
    used = {name.partition("[")[0] for name in graph.weight_values}
    assert used == set(state)
    compiled = layer.compile(TensorType(DType.float32, ["batch", "seq", 7]))
    for batch in (2, 0):
        np.testing.assert_allclose(
            compiled(x[:batch]).to_numpy(), expected[:batch], rtol=1e-4, atol=1e-5
        )


def test_no_device_has_more_than_its_part() -> None:
    kinds = [TensorType(DType.float32, ["n", 7])]
    for kind, shapes in (("rows", [(3, 7), (2, 7)]), ("columns", [(5, 4), (5, 3)])):
        layer = nn.Linear(7, 5)
        split(layer, kind, 2)
        values = trace(layer, "main", kinds).weight_values
        assert {name: (tuple(v.shape), v.device) for name, v in values.items()} == {
            f"weight[{i}]": (shape, DEVICES[i]) for i, shape in enumerate(shapes)
        }


@pytest.mark.parametrize("kind", thinned(STRATEGIES, "rows"))
def test_quantized_linear(kind: str) -> None:
    layer = nn.Linear(96, 5, quantization_encoding=QuantizationEncoding.Q8_0)
    split(layer, kind, 2)
    packed = quantize(random(5, 96), gguf.GGMLQuantizationType.Q8_0)
    layer.weight.bind(packed)
    x = random(3, 96)
    expected = x @ dequantize(packed, gguf.GGMLQuantizationType.Q8_0).T
    np.testing.assert_allclose(layer(Tensor(x)).to_numpy(), expected, rtol=1e-4, atol=1e-4)
    compiled = layer.compile(TensorType(DType.float32, ["n", 96]))
    # Compiled, the input is rounded to eight bits.
    assert np.linalg.norm(compiled(x).to_numpy() - expected) < 1e-2 * np.linalg.norm(expected)


@pytest.mark.parametrize("count", thinned([1, 3], 3))
@pytest.mark.parametrize("kind", STRATEGIES)
def test_embedding(kind: str, count: int) -> None:
    layer = nn.Embedding(8, 5)
    split(layer, kind, count)
    table = random(8, 5)
    table[3, 1] = np.nan  # stays with its entry
    layer.load_state_dict({"weight": table})
    ids = np.array([[0, 7, 3], [2, 5, 4]])
    np.testing.assert_array_equal(layer(Tensor(ids)).to_numpy(), table[ids])
    compiled = layer.compile(TensorType(DType.int64, ["batch", "seq"]))
    np.testing.assert_array_equal(compiled(ids).to_numpy(), table[ids])
    for wrong in (-1, 8):
        with pytest.raises((ValueError, IndexError)):
            layer(Tensor(np.array([wrong])))


def test_layers_of_several_kinds_share_devices() -> None:
    """Rows, then columns: the usual way to split an MLP; and a norm on another device."""

    class MLP(nn.Module):
        def __init__(self) -> None:
            self.norm = nn.RMSNorm(6)
            self.up, self.down = nn.Linear(6, 9), nn.Linear(9, 6)

        def __call__(self, x: Tensor) -> Tensor:
            x = ops.transfer_to(x, DEVICES[1])
            return x + self.down(ops.relu(self.up(self.norm(x))))

    model = MLP()
    split(model.norm, "copies", 2)
    split(model.up, "rows", 3)
    split(model.down, "columns", 2)
    state = {
        "norm.weight": random(6),
        "up.weight": random(9, 6),
        "down.weight": random(6, 9),
    }
    model.load_state_dict(state)
    x = random(4, 6)
    normal = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * state["norm.weight"]
    expected = x + np.maximum(normal @ state["up.weight"].T, 0) @ state["down.weight"].T
    result = model.compile(TensorType(DType.float32, ["n", 6]))(x)
    assert result.device == DEVICES[1]
    np.testing.assert_allclose(result.to_numpy(), expected, rtol=1e-4, atol=1e-4)
