"""Names that the reference documents use in signatures and prose, in no example."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maxtool import driver, nn
from maxtool.dtype import DType
from maxtool.experimental.nn import Linear, Module, module_dataclass
from maxtool.experimental.tensor import Tensor
from maxtool.graph import (
    BufferType,
    DeviceRef,
    Dim,
    Graph,
    Shape,
    TensorType,
    TensorValue,
    Type,
    Value,
    Weight,
    ops,
)
from maxtool.graph.quantization import QuantizationEncoding
from maxtool.nn.module_v3 import module_dataclass as older

CPU = DeviceRef.CPU()
ROWS = TensorType(DType.float32, ["rows", 4], CPU)


def linear(rows: int, columns: int) -> Any:
    return nn.Linear(columns, rows, DType.float32, CPU)


# driver


def test_buffer() -> None:
    """Accept the result of ``state_dict``, a Buffer or an array, in another load."""
    model = linear(3, 4)
    state = model.state_dict()
    model.load_state_dict(state)
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    for kind in (driver.Buffer, driver.Tensor):
        value = kind(data)
        assert isinstance(value, kind)
        model.load_state_dict({"weight": value})
        np.testing.assert_array_equal(np.asarray(model.state_dict()["weight"]), data)


def test_dlpack_arrays() -> None:
    for value in (np.zeros(2, np.float32), Tensor.zeros([2])):
        assert isinstance(value, driver.DLPackArray)
    assert not isinstance([0.0], driver.DLPackArray)


def test_devices() -> None:
    assert isinstance(driver.CPU(), driver.Device)
    assert driver.CPU() == DeviceRef.CPU()
    assert {driver.CPU(1): "second"}[DeviceRef.CPU(1)] == "second"
    assert driver.CPU() != driver.CPU(1)


# graph


def test_dims() -> None:
    kind = TensorType(DType.float32, [Dim("rows"), "rows", np.int64(3), 4], CPU)
    assert list(kind.shape) == [Dim("rows"), Dim("rows"), Dim(3), Dim(4)]
    assert kind.shape == Shape(["rows", "rows", 3, 4]) == ("rows", "rows", 3, 4)
    with pytest.raises((TypeError, ValueError)):
        Dim(-1)


def test_types() -> None:
    for kind in (TensorType, BufferType):
        assert isinstance(kind(DType.float32, [2], CPU), Type)


def test_graph_output() -> None:
    with Graph("double", input_types=[ROWS]) as graph:
        graph.output(graph.inputs[0] * 2)
    assert [value.type for value in graph.outputs] == [ROWS]


def test_values() -> None:
    with Graph("g", input_types=[ROWS]) as graph:
        value = graph.inputs[0]
        assert isinstance(value, TensorValue)
        assert isinstance(value, Value)
        assert (value.type, value.tensor.type) == (ROWS, ROWS)
        graph.output(value)


def test_values_move() -> None:
    with Graph("g", input_types=[ROWS]) as graph:
        for there in (
            ops.transfer_to(graph.inputs[0], DeviceRef.CPU(1)),
            graph.inputs[0].to(DeviceRef.CPU(1)),
        ):
            assert there.device == DeviceRef.CPU(1)
            assert ops.transfer_to(there, CPU).device == CPU
        graph.output(graph.inputs[0])


def test_tensors_move() -> None:
    here = Tensor.ones([2], device=driver.CPU())
    there = here.to(driver.CPU(1))
    assert (here.device, there.device) == (driver.CPU(), driver.CPU(1))
    np.testing.assert_array_equal(there.to_numpy(), here.to_numpy())


def test_print(capfd: pytest.CaptureFixture[str]) -> None:
    class Printing(Module[[Tensor], Tensor]):
        def forward(self, x: Tensor) -> Tensor:
            x.print("doubled")
            return x * 2

    compiled = Printing().compile(TensorType(DType.float32, ["n"], driver.CPU()))
    np.testing.assert_array_equal(compiled(Tensor([1.5, 2.5])).to_numpy(), [3, 5])
    printed = capfd.readouterr().out
    assert "doubled" in printed
    assert "1.5" in printed


def test_weights_are_editable() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            self.w = Weight("w", DType.float32, [2, 32], CPU)

        def __call__(self, x: Any) -> Any:
            return x + self.w

    model = Holder()
    weight = model.raw_state_dict()["w"]
    weight.shape = Shape([3, 4])
    weight.dtype = DType.float64
    weight.device = DeviceRef.CPU(1)
    weight.align = 8
    assert weight.type == TensorType(DType.float64, [3, 4], DeviceRef.CPU(1))
    data = np.ones((3, 4))
    model.load_state_dict({"w": data})
    np.testing.assert_array_equal(np.asarray(model.state_dict()["w"]), data)
    weight.quantization_encoding = QuantizationEncoding.Q8_0
    assert model.raw_state_dict()["w"].quantization_encoding is QuantizationEncoding.Q8_0


# modules


@pytest.mark.parametrize("decorate", [module_dataclass, older])
def test_module_dataclass(decorate: Any) -> None:
    class Scale(Module[[Tensor], Tensor]):
        fc: Linear
        scale: float = 2.0

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x) * self.scale

    for result in (decorate(Scale), decorate()(Scale), decorate(repr=False, eq=False)(Scale)):
        model = result(Linear(2, 3))
        assert [name for name, _ in model.parameters] == ["fc.weight", "fc.bias"]
        assert model(Tensor.ones([2])).shape == [3]
        assert repr(model).startswith("Scale(\n")
    assert "Scale(fc=" in repr(decorate(repr=True)(Scale)(Linear(2, 3)))
