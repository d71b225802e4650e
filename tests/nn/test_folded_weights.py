"""Weights that follow from others: named for them, computed when they are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maxtool.architectures.image_convolution import BATCH_EPS, NormedConvolution, Window
from maxtool.dtype import DType
from maxtool.engine import InferenceSession
from maxtool.errors import MissingWeight, ModelMismatch
from maxtool.graph import FoldedWeight, Tensor, TensorType, Weight
from maxtool.nn import Module, ModuleList
from maxtool.nn.tracing import trace

F32 = DType.float32
Array = np.ndarray[Any, Any]


class Pair(Module[[Tensor], Tensor]):
    """Two convolutions alike, which share a subgraph."""

    def __init__(self) -> None:
        self.convs = ModuleList(NormedConvolution(3, 3, Window(3, 1, 1)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x)
        return x


def state(module: Module[..., Any]) -> dict[str, Array]:
    random = np.random.default_rng(0)
    return {
        name: random.uniform(0.5, 1.5, weight.shape.static()).astype(np.float32)
        for name, weight in module.raw_state_dict().items()
    }


def expected(x: Array, values: dict[str, Array], prefix: str) -> Array:
    """A convolution of 3 x 3 and a batch norm, by their definitions."""
    own = {name.removeprefix(prefix): each.astype(float) for name, each in values.items()}
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    rows, columns = x.shape[1:3]
    convolved = sum(
        padded[:, row : row + rows, column : column + columns] @ own["weight"][:, :, row, column].T
        for row in range(3)
        for column in range(3)
    )
    centred = (convolved - own["norm.mean"]) / np.sqrt(own["norm.variance"] + BATCH_EPS)
    result: Array = centred * own["norm.weight"] + own["norm.bias"]
    return result


def test_a_state_has_what_they_follow_from() -> None:
    module = Pair()
    parts = ("weight", *(f"norm.{part}" for part in ("weight", "bias", "mean", "variance")))
    assert {*module.raw_state_dict()} == {f"convs.{n}.{part}" for n in range(2) for part in parts}


def test_layers_that_share_a_subgraph_have_their_own() -> None:
    module = Pair()
    values = state(module)
    module.load_state_dict(values)
    x = np.random.default_rng(1).standard_normal((2, 5, 4, 3)).astype(np.float32)
    model = module.compile(TensorType(F32, ["n", 5, 4, 3]))
    wanted = expected(expected(x.astype(float), values, "convs.0."), values, "convs.1.")
    np.testing.assert_allclose(model(x).to_numpy(), wanted, rtol=1e-5, atol=1e-4)


def test_a_registry_has_what_they_follow_from() -> None:
    module, x = Pair(), np.ones((1, 4, 4, 3), np.float32)
    values = state(module)
    module.load_state_dict({name: np.ones_like(value) for name, value in values.items()})
    graph = trace(module, "pair", [TensorType(F32, ["n", 4, 4, 3])])
    model = InferenceSession().load(graph, weights_registry=values)
    wanted = expected(expected(x.astype(float), values, "convs.0."), values, "convs.1.")
    np.testing.assert_allclose(model(x)[0].to_numpy(), wanted, rtol=1e-5, atol=1e-4)
    values.pop("convs.1.norm.mean")
    with pytest.raises(MissingWeight, match=r"'convs\.1\.norm\.bias\.folded' is missing"):
        InferenceSession().load(graph, weights_registry=values)


def test_a_name_follows_that_of_the_first_source() -> None:
    first, second = Weight("a", F32, [2]), Weight("b", F32, [2])
    folded = FoldedWeight([2], (first, second), np.add)
    assert (folded.name, folded.local_name, first.folded) == ("a.folded", "a.folded", folded)
    first.name = "layers.0.a"
    assert folded.name == "layers.0.a.folded"
    assert not folded.is_bound
    first.bind(np.array([1, 2], np.float32))
    second.bind(np.array([3, 4], np.float32))
    assert folded.is_bound
    assert folded.to_numpy().tolist() == [4, 6]


def test_sources_that_nothing_follows_from() -> None:
    def refused(_: Array) -> Array:
        raise ValueError("it is not so")

    folded = FoldedWeight([1], (Weight("a", F32, [1]),), refused)
    with pytest.raises(ModelMismatch, match="it is not so"):
        folded.computed(lambda _: np.zeros(1, np.float32))
