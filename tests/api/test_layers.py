"""Names of the reference document on layers that no example of it has."""

from __future__ import annotations

from typing import Any

import numpy as np

from maxtool import nn
from maxtool.dtype import DType
from maxtool.graph import DeviceRef
from maxtool.nn.layer import Layer, LayerList, LayerV2, ShardingStrategy

CPU = DeviceRef.CPU()


def linear(rows: int, columns: int) -> Any:
    return nn.Linear(columns, rows, DType.float32, CPU)


def test_layers() -> None:
    class Older(Layer):
        def __call__(self, x: Any) -> Any:
            return x

    class Newer(LayerV2):
        def __init__(self) -> None:
            self.inner = LayerList([linear(3, 4)])

        def __call__(self, x: Any) -> Any:
            return self.inner[0](x)

    assert Older()(1) == 1
    model = Newer()
    assert list(model.sublayers) == ["inner"]
    assert list(model.inner.sublayers) == ["0"]
    assert list(model.inner[0].layer_weights) == ["weight"]
    assert list(model.state_dict()) == ["inner.0.weight"]


def test_extending_a_layer_list() -> None:
    layers = LayerList([linear(2, 2)])
    layers.extend([linear(2, 3), linear(3, 3)])
    layers.extend(LayerList([linear(3, 4)]))
    assert list(layers.state_dict()) == ["0.weight", "1.weight", "2.weight", "3.weight"]
    assert layers.sublayers["3"] is layers[3]


def test_sharding_strategy() -> None:
    """``to`` with a strategy splits a weight so that the devices together compute the whole."""
    devices = [DeviceRef.CPU(0), DeviceRef.CPU(1)]
    data = np.arange(24, dtype=np.float32).reshape(6, 4)
    for strategy in (
        ShardingStrategy.rowwise(len(devices)),
        ShardingStrategy.columnwise(len(devices)),
        ShardingStrategy.replicate(len(devices)),
    ):
        model = linear(6, 4)
        assert model.to(*devices, sharding_strategy=strategy) is None
        model.load_state_dict({"weight": data})
        np.testing.assert_array_equal(np.asarray(model.state_dict()["weight"]), data)
        shards = [model.weight.shard(device) for device in devices]
        assert [shard.device for shard in shards] == devices
