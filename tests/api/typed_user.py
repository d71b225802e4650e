"""A user's own file; test_typing.py has mypy check it, strictly.

A comment that silences an error is an error itself where nothing is to be silenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, SupportsIndex, assert_type

import numpy as np

from maxtool import nn
from maxtool.driver import CPU
from maxtool.dtype import DType
from maxtool.experimental import random
from maxtool.experimental.nn import (
    Embedding,
    Linear,
    Module,
    ModuleList,
    Sequential,
    module_dataclass,
)
from maxtool.experimental.tensor import Tensor, TensorType
from maxtool.graph import DeviceRef, DimLike, Graph, TensorValue, Weight, ops
from maxtool.graph.quantization import QuantizationEncoding
from maxtool.graph.weights import WeightData, Weights, load_weights
from maxtool.nn import module_v3
from maxtool.nn.layer import (
    Layer,
    LayerList,
    LayerV2,
    ShardingStrategy,
    add_layer_hook,
    recursive_named_layers,
)


@module_dataclass
class Scaled(Module[[Tensor], Tensor]):
    inner: Linear
    scale: float = 2.0

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * self.scale


@module_dataclass(frozen=True)
class Pair(Module[[Tensor, Tensor], tuple[Tensor, Tensor]]):
    weight: Tensor

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * self.weight, y


class Older(module_v3.Module):
    def __call__(self, x: Tensor) -> Tensor:
        return x + 1


class Block(LayerV2):
    def __init__(self) -> None:
        super().__init__()
        self.weight = Weight("weight", DType.float32, (4, 4), DeviceRef.CPU())

    def __call__(self, x: TensorValue) -> TensorValue:
        return ops.silu(x @ self.weight.T)


class Stack(nn.Module):
    def __init__(self) -> None:
        self.layers = LayerList([Block(), Block()])

    def __call__(self, x: TensorValue) -> TensorValue:
        for layer in self.layers:
            x = layer(x)
        return x


class Dictionary:
    """Weights of a user's own."""

    def __init__(self, arrays: Mapping[str, np.ndarray[Any, Any]], name: str = "") -> None:
        self.arrays, self.name = arrays, name

    def __getattr__(self, segment: str) -> Self:
        return self[segment]

    def __getitem__(self, segment: str | SupportsIndex) -> Self:
        return type(self)(self.arrays, f"{self.name}.{segment}")

    @property
    def allocated_weights(self) -> Mapping[str, np.ndarray[Any, Any]]:
        return self.arrays

    def exists(self) -> bool:
        return self.name in self.arrays

    def data(self) -> WeightData:
        return WeightData.from_numpy(self.arrays[self.name], self.name)

    def items(self) -> Iterator[tuple[str, Self]]:
        return ((name, type(self)(self.arrays, name)) for name in self.arrays)

    def allocate(
        self,
        dtype: DType | None = None,
        shape: Iterable[DimLike] | None = None,
        quantization_encoding: QuantizationEncoding | None = None,
        device: DeviceRef = CPU(),  # noqa: B008 - as the document has it
    ) -> Weight:
        kind = dtype or DType.float32
        return Weight(self.name, kind, shape or [2], device, quantization_encoding)


def eager() -> None:
    model = Scaled(Linear(2, 3), scale=1.5)
    assert_type(model(Tensor.ones([2])), Tensor)
    assert_type(model.to(CPU()), Scaled)
    assert_type(model.map_parameters(lambda _, t: t), Scaled)
    assert_type(dict(model.parameters), dict[str, Tensor])
    model(3)  # type: ignore[arg-type]
    Scaled(Linear(2, 3), factor=1)  # type: ignore[call-arg]
    assert_type(Pair(Tensor.ones([2]))(Tensor.ones([2]), Tensor.ones([2])), tuple[Tensor, Tensor])
    assert_type(Older()(Tensor.ones([2])), Tensor)
    blocks = ModuleList([Linear(2, 2)])
    blocks.append(Linear(2, 3))
    blocks.append(3)  # type: ignore[arg-type]
    assert_type(blocks[0], Linear)
    assert_type(Sequential(Linear(2, 2), Embedding(3, dim=2))(Tensor.ones([2])), Tensor)
    model.load_state_dict({"inner.weight": Tensor.zeros([3, 2]), "inner.bias": np.zeros(3)})
    model.load_state(lambda _, old: old)
    compiled = model.compile(TensorType(DType.float32, ["batch", 2], device=CPU()))
    compiled(Tensor.ones([1, 2]))


def graph(state: Mapping[str, np.ndarray[Any, Any]]) -> None:
    model = Stack()
    assert_type(model.layers[0], Block)
    assert_type(model.raw_state_dict(), dict[str, Weight])
    model.load_state_dict(state, strict=False, weight_alignment=1)
    kind = TensorType(DType.float32, ["rows", 4])
    block = model.layers[0].build_subgraph("block", [kind], weight_prefix="layers.0.")
    assert_type(block, Graph)
    built = Graph("stack", model, input_types=[kind])
    built.add_weight(Weight("more", DType.float32, [2]))
    devices = [DeviceRef.CPU(index) for index in range(2)]
    model.to(*devices, sharding_strategy=ShardingStrategy.rowwise(len(devices)))
    assert_type(model.layers[0].weight.shard(devices[1]).device, DeviceRef)
    names = [name for name, layer in recursive_named_layers(model) if isinstance(layer, LayerV2)]
    assert_type(names, list[str])


def hooks() -> None:
    seen: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = []

    def show(layer: Layer, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> None:
        seen.append((type(layer).__name__, args, kwargs, outputs))

    add_layer_hook(show)


def weights(path: str) -> None:
    state(load_weights([path]))
    state(Dictionary({}))
    result = load_weights([path])
    assert_type(result.model.layers[0], Weights)
    assert_type(result.model.layers[0].weight.allocate(DType.float16), Weight)


def state(result: Weights) -> None:
    Stack().load_state_dict(dict(result.items()))
    Linear(2, 3).load_state_dict({name: weight.data() for name, weight in result.items()})
    assert_type(random([3, 2], dtype=DType.float32), Tensor)
    assert_type(Tensor.randn([2]).var(), Tensor)
