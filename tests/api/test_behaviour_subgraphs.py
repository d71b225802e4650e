"""The corners of hooks and subgraphs, row by row as the reference's BEHAVIOUR.md lists them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maxtool import nn
from maxtool.graph import Graph, ops
from maxtool.nn import add_layer_hook, clear_hooks
from maxtool.nn.tracing import trace
from tests.api.graph_modules import MLP, Array, Linear, kind, mlp, run, values

# hooks


@pytest.fixture
def seen() -> Any:
    calls: list[str] = []
    yield calls
    clear_hooks()


def test_hooks_run_children_first_and_may_replace(seen: list[str]) -> None:
    def first(layer: Any, _args: Any, _kwargs: Any, outputs: Any) -> Any:
        seen.append(type(layer).__name__)
        return outputs * 2 if isinstance(layer, MLP) else None

    def second(layer: Any, _args: Any, _kwargs: Any, outputs: Any) -> Any:
        return outputs + 1 if isinstance(layer, MLP) else None

    add_layer_hook(first)
    add_layer_hook(second)
    model = MLP()
    model.load_state_dict(values())
    x = np.ones((2, 5), np.float32)
    np.testing.assert_allclose(run(model, x), mlp(values(), x) * 2 + 1, rtol=1e-4, atol=1e-5)
    assert seen == ["Linear", "Linear", "Linear", "MLP"]


@pytest.mark.usefixtures("seen")
def test_what_a_hook_raises_passes() -> None:
    def broken(*_: Any) -> None:
        raise LookupError("broken hook")

    add_layer_hook(broken)
    with pytest.raises(LookupError, match="broken hook"):
        Graph("g", MLP(), input_types=[kind("n", 5)])


# subgraphs


class Stack(nn.Module):
    def __init__(self, prefix: str = "layers.0.", call: str = "layers.{}.") -> None:
        self.layers = nn.ModuleList([Linear(4, 4) for _ in range(3)])
        self.prefix, self.call = prefix, call

    def __call__(self, x: Any) -> Any:
        block = self.layers[0].build_subgraph("block", [x.type], self.prefix)
        for index in range(len(self.layers)):
            prefix = self.call.format(index)
            (x,) = ops.call(block, x, prefix=prefix) if prefix else ops.call(block, x)
        return x


def stack_state() -> dict[str, Array]:
    rows = np.random.default_rng(0)
    return {f"layers.{i}.weight": rows.normal(size=(4, 4)).astype(np.float32) for i in range(3)}


def test_a_subgraph_is_built_from_values_or_types() -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            self.inner = Linear(4, 4)

        def __call__(self, x: Any, more: Any) -> Any:
            return self.inner(x) + more["a"][0]

    class Calls(nn.Module):
        def __init__(self, of: Any) -> None:
            self.block, self.of = Nested(), of

        def __call__(self, x: Any) -> Any:
            of = self.of(x)
            block = self.block.build_subgraph("block", [of, {"a": [of]}], "block.")
            return ops.call(block, x, x, prefix="block.")[0]

    x = np.ones((2, 4), np.float32)
    for of in (lambda x: x, lambda x: x.type):
        model = Calls(of)
        state = {"block.inner.weight": stack_state()["layers.0.weight"]}
        model.load_state_dict(state)
        expected = x @ state["block.inner.weight"].T + x
        np.testing.assert_allclose(run(model, x), expected, rtol=1e-4, atol=1e-5)


def test_a_subgraph_uses_each_layers_weights() -> None:
    model = Stack()
    model.load_state_dict(stack_state())
    x = np.ones((2, 4), np.float32)
    expected = x
    for weight in stack_state().values():
        expected = expected @ weight.T
    np.testing.assert_allclose(run(model, x), expected, rtol=1e-4, atol=1e-4)


def test_a_hook_sees_a_subgraph_where_it_is_built(seen: list[str]) -> None:
    add_layer_hook(lambda layer, *_: seen.append(type(layer).__name__))
    trace(Stack(), "g", [kind("rows", 4)])
    assert seen == ["Linear", "Stack"]


def test_a_hook_sees_every_layer_of_a_list(seen: list[str]) -> None:
    add_layer_hook(lambda layer, *_: seen.append(type(layer).__name__))
    layers = nn.Sequential(*(Linear(4, 4) for _ in range(3)))
    trace(layers, "g", [kind("rows", 4)])
    # instead of once for all that are traced together
    assert seen == ["Linear", "Linear", "Linear", "Sequential"]


@pytest.mark.parametrize("prefix", ["other.", "layers.1.", "0."])
def test_a_prefix_that_no_weight_has_is_an_error(prefix: str) -> None:
    # instead of every call silently using the weights of layer 0
    with pytest.raises(ValueError, match=r"prefix|starts with"):
        Stack(prefix).compile(kind("rows", 4))


def test_a_call_prefix_without_a_weight_prefix_is_an_error() -> None:
    # instead of every call silently using the weights of layer 0
    with pytest.raises(ValueError, match="prefix"):
        Stack("").compile(kind("rows", 4))


@pytest.mark.parametrize("call", ["zzz.{}.", ""])
def test_a_call_prefix_that_no_weight_has_is_an_error(call: str) -> None:
    model = Stack(call=call)
    model.load_state_dict(stack_state())
    with pytest.raises((ValueError, LookupError), match=r"weight|prefix"):
        model.compile(kind("rows", 4))


def test_two_subgraphs_of_one_name_are_an_error() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            self.a, self.b = Linear(4, 4), Linear(4, 4)

        def __call__(self, x: Any) -> Any:
            first = self.a.build_subgraph("same", [x.type], "a.")
            second = self.b.build_subgraph("same", [x.type], "b.")
            (x,) = ops.call(first, x, prefix="a.")
            (x,) = ops.call(second, x, prefix="b.")
            return x

    with pytest.raises(ValueError, match="same"):
        Twice().compile(kind("rows", 4))


def test_the_number_of_arguments_of_a_call_is_checked() -> None:
    class Wrong(Stack):
        def __call__(self, x: Any) -> Any:
            block = self.layers[0].build_subgraph("block", [x.type], self.prefix)
            return ops.call(block, x, x, prefix="layers.0.")[0]

    with pytest.raises((TypeError, ValueError), match="1"):
        Wrong().compile(kind("rows", 4))
