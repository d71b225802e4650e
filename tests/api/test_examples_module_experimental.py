"""The examples of the document on maxtool.experimental.nn, each with the results it states."""

# The code is kept as the document prints it, so that the two can be compared.
# ruff: noqa: ARG005, F841, I001, N812, RET504, T201
# fmt: off

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

from maxtool.driver import CPU
from tests.api.examples import example


@example("module_experimental", 23, 25)
def test_types_of_a_module() -> None:
    from maxtool.experimental.nn import Module
    from maxtool.experimental.tensor import Tensor

    class Linear(Module[[Tensor], Tensor]):
        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight.T + self.bias

    linear = Linear()
    linear.weight = Tensor.ones([5, 4])
    linear.bias = Tensor.ones([5])
    np.testing.assert_array_equal(linear(Tensor([1, 2, 3, 4])).to_numpy(), np.full(5, 11))


@example("module_experimental", 37, 47)
def test_module(capsys: pytest.CaptureFixture[str]) -> None:
    from maxtool.experimental.tensor import Tensor
    from maxtool.experimental.nn import Module, module_dataclass
    @module_dataclass
    class Linear(Module):
        weight: Tensor
        bias: Tensor | int = 0
        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight.T + self.bias
    linear = Linear(Tensor.zeros([5, 4]))
    print(linear)
    print(linear(Tensor([1, 2, 3, 4])))

    assert capsys.readouterr().out.startswith("Linear(")
    np.testing.assert_array_equal(linear(Tensor([1, 2, 3, 4])).to_numpy(), np.zeros(5))


@example("module_experimental", 55, 59)
def test_device_placement(accelerator: AbstractContextManager[Any]) -> None:
    with accelerator:
        from maxtool.driver import Accelerator
        from maxtool.experimental.nn import Linear
        model = Linear(10, 5)
        model.to(Accelerator()) # sets device, moves weights
        compiled = model.compile(*model.input_types()) # computation runs on GPU

        check_linear(model, compiled, Accelerator())


@example("module_experimental", 61, 62)
def test_device_placement_on_the_cpu() -> None:
    from maxtool.experimental.nn import Linear

    model = Linear(10, 5)
    compiled = model.compile(*model.input_types()) # runs on CPU

    check_linear(model, compiled, CPU())


def check_linear(model: Any, compiled: Any, device: Any) -> None:
    """A compiled Linear(10, 5) computes x @ W.T + b, on its device, for any batch."""
    from maxtool.experimental.tensor import Tensor

    assert model.device == device
    assert {t.device for _, t in model.parameters} == {device}
    assert {kind.device for kind in model.input_types()} == {device}
    weight, bias = model.weight.to_numpy(), model.bias.to_numpy()
    for batch in (1, 3):
        result = compiled(Tensor.ones([batch, 10], device=device))
        expected = np.tile(weight.sum(1) + bias, (batch, 1))
        np.testing.assert_allclose(result.to_numpy(), expected, rtol=1e-4, atol=1e-5)
        assert result.device == device


@example("module_experimental", 64, 65)
def test_modules_on_different_devices(accelerator: AbstractContextManager[Any]) -> None:
    from maxtool.experimental.nn import Linear

    encoder, decoder = Linear(2, 2), Linear(2, 2)
    with accelerator:
        from maxtool.driver import Accelerator

        encoder.to(Accelerator(0))
        decoder.to(Accelerator(1))

        assert encoder.device == Accelerator(0)
        assert decoder.device == Accelerator(1)
        assert decoder.weight.device == Accelerator(1)


@example("module_experimental", 80, 83)
def test_apply_to_local_parameters(accelerator: AbstractContextManager[Any]) -> None:
    with accelerator:
        from maxtool.driver import Accelerator
        from maxtool.experimental.nn import Linear
        model = Linear(2, 3)
        model.apply_to_parameters(lambda _, t: t.to(Accelerator()))

        assert {t.device for _, t in model.parameters} == {Accelerator()}
        model.inner = Linear(2, 3)
        seen = []
        model.apply_to_local_parameters(lambda name, t: seen.append(name) or t)
        assert sorted(seen) == ["bias", "weight"]


@example("module_experimental", 100, 113)
def test_apply_to_parameters(accelerator: AbstractContextManager[Any]) -> None:
    with accelerator:
        from maxtool.driver import Accelerator
        from maxtool.experimental.tensor import Tensor
        from maxtool.experimental.nn import Module, module_dataclass, Linear
        @module_dataclass
        class MLP(Module):
            fc1: Linear
            fc2: Linear
            def forward(self, x: Tensor) -> Tensor:
                return self.fc2(self.fc1(x))
        model = MLP(
            fc1=Linear(10, 20),
            fc2=Linear(20, 5)
        )
        model.apply_to_parameters(lambda name, t: t.to(Accelerator()))

        assert {t.device for _, t in model.parameters} == {Accelerator()}
        seen = []
        model.apply_to_parameters(lambda name, t: seen.append(name) or t)
        assert seen == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]


@example("module_experimental", 152, 157)
def test_compile_on_a_device(accelerator: AbstractContextManager[Any]) -> None:
    with accelerator:
        from maxtool.driver import Accelerator
        from maxtool.experimental.nn import Linear
        model = Linear(10, 5)
        model.to(Accelerator()) # sets device, moves weights to GPU
        # input_types() uses self.device — computation runs on GPU:
        compiled = model.compile(*model.input_types())

        check_linear(model, compiled, Accelerator())


@example("module_experimental", 158, 178)
def test_compile(capsys: pytest.CaptureFixture[str]) -> None:
    from maxtool.dtype import DType
    from maxtool.experimental.tensor import Tensor, TensorType, defaults
    from maxtool.experimental.nn import Module, module_dataclass
    @module_dataclass
    class Linear(Module):
        weight: Tensor
        bias: Tensor
        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight.T + self.bias
    linear = Linear(
        weight=Tensor.zeros([10, 5]),
        bias=Tensor.zeros([10])
    )
    # Compile with fixed input shape
    _, device = defaults()
    input_type = TensorType(DType.float32, [3, 5], device=device)
    model = linear.compile(input_type)
    # Execute compiled model
    input_data = Tensor.ones([3, 5], dtype=DType.float32)
    result = model(input_data)
    print(result)

    assert "[3, 10]" in capsys.readouterr().out
    np.testing.assert_array_equal(result.to_numpy(), np.zeros((3, 10)))
    with pytest.raises(ValueError, match="3"):  # the shape is fixed
        model(Tensor.ones([4, 5], dtype=DType.float32))


@example("module_experimental", 214, 219)
def test_device(
    accelerator: AbstractContextManager[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with accelerator:
        from maxtool.driver import Accelerator
        from maxtool.experimental.nn import Linear
        model = Linear(2, 3)
        print(model.device) # CPU() — CPU default
        model.to(Accelerator())
        print(model.device) # Accelerator(id=0)

    before, *after = capsys.readouterr().out.splitlines()
    assert before == "CPU()"
    assert after in ([], ["Accelerator(id=0)"])


@example("module_experimental", 247, 254)
def test_load_state() -> None:
    from maxtool.experimental.tensor import Tensor
    from maxtool.experimental.nn import Linear
    model = Linear(2, 3)
    weights = {
        "weight": Tensor.zeros([3, 2]),
        "bias": Tensor.zeros([3]),
    }
    model.load_state(lambda name, _: weights[name])

    assert not any(t.to_numpy().any() for _, t in model.parameters)


@example("module_experimental", 278, 295)
def test_load_state_dict() -> None:
    from maxtool.experimental.tensor import Tensor
    from maxtool.experimental.nn import Module, module_dataclass
    @module_dataclass
    class Linear(Module):
        weight: Tensor
        bias: Tensor
        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight.T + self.bias
    model = Linear(
        weight=Tensor.zeros([10, 5]),
        bias=Tensor.zeros([10])
    )
    # Load weights from dictionary
    weights = {
        "weight": Tensor.zeros([10, 5]),
        "bias": Tensor.zeros([10]),
    }
    model.load_state(lambda name, _: weights[name])

    # The document has no example that calls the method itself.
    ones = {"weight": Tensor.ones([10, 5]), "bias": Tensor.ones([10])}
    model.load_state_dict(ones)
    assert model.weight.to_numpy().all()
    with pytest.raises(ValueError, match="other"):
        model.load_state_dict({**ones, "other": Tensor.ones([1])})
    with pytest.raises(ValueError, match="weight"):
        model.load_state_dict({**ones, "weight": Tensor.ones([5, 10])})
    with pytest.raises(KeyError, match="bias"):
        model.load_state_dict({"weight": ones["weight"]}, strict=False)


@example("module_experimental", 327, 330)
def test_map_parameters(accelerator: AbstractContextManager[Any]) -> None:
    with accelerator:
        from maxtool.driver import Accelerator
        from maxtool.experimental.nn import Linear
        model = Linear(2, 3)
        model_on_gpu = model.map_parameters(lambda _, t: t.to(Accelerator()))

        assert type(model_on_gpu) is Linear
        assert model_on_gpu is not model
        assert {t.device for _, t in model_on_gpu.parameters} == {Accelerator()}


@example("module_experimental", 355, 373)
def test_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    from maxtool.experimental.tensor import Tensor
    from maxtool.experimental.nn import Module, module_dataclass
    from maxtool.experimental.nn import Linear
    @module_dataclass
    class MLP(Module):
        fc1: Linear
        fc2: Linear
        def forward(self, x: Tensor) -> Tensor:
            return self.fc2(self.fc1(x))
    model = MLP(
        fc1=Linear(10, 20),
        fc2=Linear(20, 5)
    )
    # Count parameters
    total_params = sum(
        param.num_elements()
        for name, param in model.parameters
    )
    print(f"Total parameters: {total_params}")

    assert capsys.readouterr().out == "Total parameters: 325\n"


@example("module_experimental", 384, 391)
def test_to(accelerator: AbstractContextManager[Any]) -> None:
    with accelerator:
        from maxtool.driver import Accelerator
        from maxtool.experimental.nn import Linear
        from maxtool.graph import TensorType
        from maxtool.dtype import DType
        model = Linear(2, 3)
        model.to(Accelerator())
        # input_types() uses self.device, so computation runs on GPU:
        compiled = model.compile(*model.input_types())

        assert model.to(Accelerator()) is model
        (kind,) = model.input_types()
        assert isinstance(kind, TensorType)
        assert (kind.dtype, kind.device) == (DType.float32, Accelerator())


@example("module_experimental", 422, 445)
def test_module_dataclass(capsys: pytest.CaptureFixture[str]) -> None:
    from maxtool.experimental.nn import Module, Linear, module_dataclass
    from maxtool.experimental.tensor import Tensor
    from maxtool.experimental import functional as F
    @module_dataclass
    class MLP(Module):
        fc1: Linear
        fc2: Linear
        def forward(self, x: Tensor) -> Tensor:
            x = self.fc1(x)
            x = F.relu(x)
            x = self.fc2(x)
            return x
    # Create module with automatic parameter tracking
    mlp = MLP(
        fc1=Linear(128, 256),
        fc2=Linear(256, 128)
    )
    # All parameters are automatically tracked
    print(dict(mlp.parameters).keys())
    # {'fc1.weight', 'fc1.bias', 'fc2.weight', 'fc2.bias'}
    # Use the module
    x = Tensor.randn([4, 128])
    output = mlp(x)
    print(output.shape) # (4, 128)

    names, shape = capsys.readouterr().out.splitlines()
    assert names == "dict_keys(['fc1.weight', 'fc1.bias', 'fc2.weight', 'fc2.bias'])"
    assert shape.strip("()[]") == "4, 128"
    w1, b1, w2, b2 = (t.to_numpy() for _, t in mlp.parameters)
    expected = np.maximum(x.to_numpy() @ w1.T + b1, 0) @ w2.T + b2
    np.testing.assert_allclose(output.to_numpy(), expected, rtol=1e-3, atol=1e-2)
