"""The examples of the document on module_v3, each with the results it states."""

# The code is kept as the document prints it, so that the two can be compared.
# ruff: noqa: B905, F401, RUF007, T201
# fmt: off

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

from maxtool.driver import CPU, accelerator_count
from tests.api.examples import example


@example("module_v3", 19, 26)
def test_embedding() -> None:
    from maxtool.dtype import DType
    from maxtool.experimental.tensor import Tensor
    from maxtool.nn.module_v3 import Embedding

    embedding = Embedding(vocab_size=1000, dim=128)
    tokens = Tensor.ones([10], dtype=DType.uint64)
    embedded = embedding(tokens)
    assert embedded.shape == [10, 128]

    table = embedding.weight.to_numpy()
    np.testing.assert_array_equal(embedded.to_numpy(), np.tile(table[1], (10, 1)))
    assert (embedding.vocab_size, embedding.dim, embedding.dims) == (1000, 128, [128])


@example("module_v3", 30, 37)
def test_embedding_of_several_dimensions() -> None:
    from maxtool.dtype import DType
    from maxtool.experimental.tensor import Tensor
    from maxtool.nn.module_v3 import Embedding

    embedding = Embedding(vocab_size=1000, dims=[16, 128])
    tokens = Tensor.ones([10], dtype=DType.uint64)
    embedded = embedding(tokens)
    assert embedded.shape == [10, 16, 128]

    assert list(embedding.dims) == [16, 128]
    with pytest.raises(TypeError):  # ".dim raises for 0- or >1-dimensional embeddings"
        embedding.dim  # noqa: B018


@example("module_v3", 83, 92)
def test_linear() -> None:
    from maxtool.experimental.tensor import Tensor
    from maxtool.nn.module_v3 import Linear

    model = Linear(5, 10)

    assert dict(model.parameters) == {
        "weight": model.weight, "bias": model.bias
    }

    result = model(Tensor.ones([5]))
    assert result.shape == [10]

    weight, bias = model.weight.to_numpy(), model.bias.to_numpy()
    assert weight.shape == (10, 5)
    np.testing.assert_allclose(result.to_numpy(), weight.sum(1) + bias, rtol=1e-4, atol=1e-5)
    assert (model.in_dim, model.out_dim) == (5, 10)
    plain = Linear(5, 10, bias=False)
    assert plain.bias == 0
    assert list(dict(plain.parameters)) == ["weight"]


@example("module_v3", 140, 153)
def test_module(capsys: pytest.CaptureFixture[str]) -> None:
    from maxtool.experimental.tensor import Tensor
    from maxtool.nn.module_v3 import Module, module_dataclass

    @module_dataclass
    class Linear(Module):
        weight: Tensor
        bias: Tensor | int = 0

        def __call__(self, x: Tensor) -> Tensor:
            return x @ self.weight.T + self.bias

    linear = Linear(Tensor.zeros([5, 4]))
    print(linear)
    print(linear(Tensor.constant([1, 2, 3, 4])))

    printed = capsys.readouterr().out
    assert printed.startswith("Linear(")
    assert "weight=Tensor(" in printed
    assert "bias=" not in printed  # left at its default
    np.testing.assert_array_equal(linear(Tensor.constant([1, 2, 3, 4])).to_numpy(), np.zeros(5))


@example("module_v3", 163, 167)
def test_apply_to_local_parameters(accelerator: AbstractContextManager[Any]) -> None:
    with accelerator:
        from maxtool.driver import Accelerator
        from maxtool.nn.module_v3 import Linear

        model = Linear(2, 3)
        model.apply_to_parameters(lambda _, t: t.to(Accelerator()))

        assert {t.device for _, t in model.parameters} == {Accelerator()}
        # The method itself leaves the parameters of descendants alone.
        model.inner = Linear(2, 3)
        model.apply_to_local_parameters(lambda _, t: t.to(CPU()))
        assert model.weight.device == CPU()
        model.inner.apply_to_local_parameters(lambda _, t: t.to(Accelerator()))
        assert (model.weight.device, model.inner.weight.device) == (CPU(), Accelerator())


@example("module_v3", 188, 192)
def test_apply_to_parameters(accelerator: AbstractContextManager[Any]) -> None:
    with accelerator:
        from maxtool.driver import Accelerator
        from maxtool.nn.module_v3 import Linear

        model = Linear(2, 3)
        model.apply_to_parameters(lambda _, t: t.to(Accelerator()))

        assert {t.device for _, t in model.parameters} == {Accelerator()}


@example("module_v3", 228, 239)
def test_compile(capsys: pytest.CaptureFixture[str]) -> None:
    from maxtool.dtype import DType
    from maxtool.experimental import random
    from maxtool.experimental.tensor import Tensor, TensorType, defaults
    from maxtool.nn.module_v3 import Linear

    linear = Linear(2, 3)
    _, device = defaults()
    input_type = TensorType(DType.float32, ["batch", 2], device=device)
    model = linear.compile(input_type)

    print(model(random([3, 2], dtype=DType.float32)))
    print(model(random([10, 2], dtype=DType.float32)))

    assert "[3, 3]" in capsys.readouterr().out
    for batch in (3, 10):
        x = random([batch, 2], dtype=DType.float32)
        assert 0 <= x.min(None).item() < x.max(None).item() < 1
        expected = x.to_numpy() @ linear.weight.to_numpy().T + linear.bias.to_numpy()
        np.testing.assert_allclose(model(x).to_numpy(), expected, rtol=1e-4, atol=1e-5)


@example("module_v3", 274, 282)
def test_load_state() -> None:
    from maxtool.experimental.tensor import Tensor
    from maxtool.nn.module_v3 import Linear

    model = Linear(2, 3)
    weights = {
        "weight": Tensor.zeros([3, 2]),
        "bias": Tensor.zeros([3]),
    }
    model.load_state(weights.__getitem__)

    assert not any(t.to_numpy().any() for _, t in model.parameters)


@example("module_v3", 309, 317)
def test_load_state_dict() -> None:
    from maxtool.experimental.tensor import Tensor
    from maxtool.nn.module_v3 import Linear

    model = Linear(2, 3)
    weights = {
        "weight": Tensor.zeros([3, 2]),
        "bias": Tensor.zeros([3]),
    }
    model.load_state(weights)

    assert not any(t.to_numpy().any() for _, t in model.parameters)
    # "If strict is set (default) and not all weights in state were loaded."
    with pytest.raises(ValueError, match="other"):
        model.load_state_dict({**weights, "other": Tensor.zeros([1])})
    model.load_state_dict({**weights, "other": Tensor.zeros([1])}, strict=False)


@example("module_v3", 351, 355)
def test_map_parameters(accelerator: AbstractContextManager[Any]) -> None:
    with accelerator:
        from maxtool.driver import Accelerator
        from maxtool.nn.module_v3 import Linear

        model = Linear(2, 3)
        model_on_gpu = model.map_parameters(lambda _, t: t.to(Accelerator()))

        assert type(model_on_gpu) is Linear
        assert {t.device for _, t in model_on_gpu.parameters} == {Accelerator()}
        # "without affecting the original module"
        assert {t.device for _, t in model.parameters} <= {CPU(), *on_gpu()}


def on_gpu() -> list[Any]:
    """Create eager tensors as on a machine that has a GPU."""
    from maxtool.driver import Accelerator

    return [Accelerator()] if accelerator_count() else []


@example("module_v3", 393, 397)
def test_to() -> None:
    from maxtool.driver import CPU
    from maxtool.nn.module_v3 import Linear

    model = Linear(2, 3)
    model.to(CPU())

    assert model.to(CPU()) is model
    assert {t.device for _, t in model.parameters} == {CPU()}


@example("module_v3", 419, 419)
def test_a_unary_module() -> None:
    from maxtool.experimental.tensor import Tensor
    from maxtool.nn.module_v3 import Module, Sequential

    class Doubled(Module):
        def __call__(self, x: Tensor) -> Tensor: ...

    assert Sequential(Doubled())(Tensor.ones([2])) is None  # as the body says
    assert Sequential()(Tensor.ones([2])).shape == [2]


@example("module_v3", 425, 435)
def test_sequential() -> None:
    from maxtool.experimental import Tensor
    from maxtool.nn.module_v3 import LayerNorm, Linear, Sequential

    model = Sequential(
        Linear(5, 10),
        LayerNorm(10),
        Linear(10, 5),
    )

    result = model(Tensor.ones([5]))
    assert result.shape == [5]

    first, norm, last = model
    expected = last(norm(first(Tensor.ones([5]))))
    np.testing.assert_array_equal(result.to_numpy(), expected.to_numpy())


@example("module_v3", 441, 448)
def test_sequential_from_an_iterable() -> None:
    from maxtool.nn.module_v3 import Linear, Sequential

    hidden_dims = [5, 10, 15, 20]

    model = Sequential(*(
        Linear(in_dim, out_dim) for in_dim, out_dim in
        zip(hidden_dims, hidden_dims[1:])
    ))

    assert [tuple(t.shape) for _, t in model.parameters] == [
        (10, 5), (10,), (15, 10), (15,), (20, 15), (20,)
    ]
