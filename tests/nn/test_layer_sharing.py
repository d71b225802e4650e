"""Repeated layers are traced once, and the numbers are those of layers traced in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import CallNode, Graph, Tensor, TensorType, Weight, ops
from maxtool.nn import Linear, Module, ModuleList, add_layer_hook, clear_hooks
from maxtool.nn.tracing import trace

F32 = DType.float32
ROWS = TensorType(F32, ["n", 4])
rng = np.random.default_rng(0)


class Layer(Module[..., Any]):
    def __init__(self, scale: Any = 1.0) -> None:
        self.linear = Linear(4, 4)
        self.scale = scale

    def forward(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
        scale = self.scale[0] if isinstance(self.scale, list) else self.scale
        return self.linear(x) * float(scale) + x


class Model(Module[[Tensor], Tensor]):
    def __init__(self, *layers: Module[..., Any]) -> None:
        self.layers = ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def with_values(model: Module[..., Any]) -> dict[str, np.ndarray[Any, Any]]:
    state = {
        name: rng.standard_normal(value.shape).astype(np.float32) / 4
        for name, value in model.state_dict().items()
    }
    model.load_state_dict(state)
    return state


def subgraphs(model: Module[..., Any]) -> int:
    return len(trace(model, "main", [ROWS]).subgraphs)


def check(model: Module[..., Any], wanted: Callable[[Any], Any]) -> None:
    x = rng.standard_normal((3, 4)).astype(np.float32)
    got = model.compile(ROWS)(x).to_numpy()
    np.testing.assert_allclose(got, wanted(x), rtol=1e-4, atol=1e-5)


def in_numpy(state: dict[str, Any], scales: list[float]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        for index, scale in enumerate(scales):
            x = x @ state[f"layers.{index}.linear.weight"].T * scale + x
        return x

    return run


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __float__(self) -> float:
        return 2.0


@pytest.mark.parametrize(
    ("scales", "expected"),
    [
        ([1.0] * 8, 1),
        ([1.0, 2.0] * 3, 2),
        ([1.0, 1, True], 3),
        ([[1.0], [2.0], [1.0]], 0),
        ([Unhashable()] * 2, 0),
    ],
    ids=["equal", "alternating", "equal to Python only", "lists", "unhashable"],
)
def test_layers_of_one_signature_share_a_subgraph(scales: list[Any], expected: int) -> None:
    model = Model(*map(Layer, scales))
    assert subgraphs(model) == expected
    plain = [float(scale[0]) if isinstance(scale, list) else float(scale) for scale in scales]
    check(model, in_numpy(with_values(model), plain))


def test_a_call_with_other_arguments_is_another_subgraph() -> None:
    class Calls(Model):
        def forward(self, x: Tensor) -> Tensor:
            arguments: list[tuple[Any, ...]] = [(), (1,), (1.0,), (True,), (1,), (x,), ({"a": x},)]
            for layer, extra in zip(self.layers, arguments, strict=True):
                x = layer(x, *extra)
            return self.layers[0](x, named=None)

    assert subgraphs(Calls(*(Layer() for _ in range(7)))) == 7


def test_a_weight_tied_across_layers() -> None:
    model = Model(*(Layer() for _ in range(4)))
    for index in (1, 2):
        owner, layer = model.layers[0], model.layers[index]
        layer.linear.set_shared_weight("weight", owner.linear.weight)
    assert list(model.raw_state_dict()) == ["layers.0.linear.weight", "layers.3.linear.weight"]
    assert subgraphs(model) == 2
    state = with_values(model)
    tied = {f"layers.{index}.linear.weight": state["layers.0.linear.weight"] for index in (1, 2)}
    check(model, in_numpy(state | tied, [1.0] * 4))


def test_a_layer_that_stands_in_the_list_twice() -> None:
    layer = Layer()
    model = Model(layer, Layer(), layer)
    state = with_values(model)
    first = {"layers.2.linear.weight": state["layers.0.linear.weight"]}
    check(model, in_numpy(state | first, [1.0] * 3))


def test_a_layer_that_knows_its_parent() -> None:
    model = Model(Layer(), Layer())
    for layer in model.layers:
        layer.parent = model
    assert subgraphs(model) == 0
    check(model, in_numpy(with_values(model), [1.0] * 2))


def test_a_layer_that_was_given_a_traced_value() -> None:
    class Masked(Layer):
        mask: Tensor

        def forward(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
            return super().forward(x) * self.mask

    class Masks(Model):
        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                layer.mask = x[:, :1]
            return super().forward(x)

    model = Masks(Masked(), Masked())
    graph = trace(model, "main", [ROWS])
    assert not graph.subgraphs


def test_plain_tensors_are_parameters_of_their_layers() -> None:
    class Scale(Module[[Tensor], Tensor]):
        def __init__(self) -> None:
            self.by = Tensor(rng.standard_normal(4).astype(np.float32))

        def forward(self, x: Tensor) -> Tensor:
            return x * (self.by * self.by)

    model = Model(*(Scale() for _ in range(3)))
    assert subgraphs(model) == 1
    state = with_values(model)

    def run(x: Any) -> Any:
        for by in state.values():
            x = x * by * by
        return x

    check(model, run)


def test_lists_in_lists() -> None:
    model = Model(*(Model(Layer(), Layer()) for _ in range(3)))
    graph = trace(model, "main", [ROWS])
    assert len(graph.nodes) == 3 and all(isinstance(node, CallNode) for node in graph.nodes)
    state = with_values(model)
    check(model, in_numpy(flat_names(state), [1.0] * 6))


def flat_names(state: dict[str, Any]) -> dict[str, Any]:
    return {f"layers.{i}.linear.weight": value for i, value in enumerate(state.values())}


def test_a_hook_sees_every_layer_and_what_it_sees_may_be_returned() -> None:
    seen: list[Any] = []
    add_layer_hook(lambda layer, *rest: seen.append((layer, rest[-1])))
    model = Model(*(Layer() for _ in range(3)))
    try:
        graph = trace(model, "main", [ROWS])
    finally:
        clear_hooks()
    names = ["Linear", "Layer"] * 3 + ["Model"]
    assert [type(layer).__name__ for layer, _ in seen] == names
    assert [layer for layer, _ in seen[1:-1:2]] == list(model.layers)
    graph.output(*(outputs for _, outputs in seen))
    assert len(graph.outputs) == 7


def test_results_keep_their_nesting() -> None:
    class Nested(Layer):
        def forward(self, x: Tensor, *_: Any, **__: Any) -> Any:
            return {"y": [x + 1.0]}, None, "text"

    class Takes(Model):
        def forward(self, x: Tensor) -> Any:
            (result, nothing, text) = self.layers[0](x)
            assert (nothing, text) == (None, "text")
            return result["y"][0]

    assert trace(Takes(Nested()), "main", [ROWS]).outputs[0].type == ROWS


# build_subgraph and ops.call


class Explicit(Model):
    """Layer 0 traced by hand and called with each layer's prefix."""

    prefix = "layers.0."

    def forward(self, x: Tensor) -> Tensor:
        layer = self.layers[0].build_subgraph("layer", [x.type], self.prefix)
        for index in range(len(self.layers)):
            (x,) = ops.call(layer, x, prefix=f"layers.{index}.")
        return x


def test_a_subgraph_built_by_hand() -> None:
    model = Explicit(*(Layer() for _ in range(3)))
    assert subgraphs(model) == 1
    check(model, in_numpy(with_values(model), [1.0] * 3))


def test_a_prefix_that_no_weight_has() -> None:
    model = Explicit(Layer())
    model.prefix = "blocks.0."
    with pytest.raises(ValueError, match=r"starts with 'blocks.0.': layers.0.linear.weight"):
        trace(model, "main", [ROWS])


@pytest.mark.parametrize("prefix", ["", "zzz.", "layers.7."])
def test_a_call_with_a_prefix_that_leads_to_no_weight(prefix: str) -> None:
    class Wrong(Model):
        def forward(self, x: Tensor) -> Tensor:
            layer = self.layers[0].build_subgraph("layer", [x.type], "layers.0.")
            return ops.call(layer, x, prefix=prefix)[0]

    model = Wrong(Layer())
    with_values(model)
    with pytest.raises(ValueError, match="prefix" if not prefix else "no data"):
        model.compile(ROWS)


def test_arguments_that_are_lists() -> None:
    class Sum(Module[..., Any]):
        def forward(self, x: Tensor, others: list[Tensor]) -> list[Tensor]:
            return [x + others[0], others[1]]

    graph = Sum().build_subgraph("sum", [ROWS, [ROWS, ROWS]])
    assert (len(graph.inputs), len(graph.outputs)) == (3, 2)
    assert not graph.placeholders


def test_a_subgraph_without_a_prefix_uses_its_own_weights() -> None:
    weight = Weight("w", F32, [4])

    class Own(Module[[Tensor], Tensor]):
        def __init__(self) -> None:
            self.weight = weight

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight

    callee = Own().build_subgraph("own", [ROWS])
    graph = Graph("main", lambda x: ops.call(callee, *ops.call(callee, x)), [ROWS])
    assert list(graph.weight_values) == ["w"]
