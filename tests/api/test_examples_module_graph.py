"""The examples of the document on graph modules, each with the results it states."""

# The code is kept as the document prints it, so that the two can be compared.
# ruff: noqa: ANN001, ANN002, ANN204, I001, T201
# fmt: off

from __future__ import annotations

import numpy as np
import pytest

from maxtool import nn
from maxtool.dtype import DType
from maxtool.graph import DeviceRef, Graph, TensorType, ops
from tests.api.examples import example


@example("module_graph", 8, 25)
def test_module(capsys: pytest.CaptureFixture[str]) -> None:
    from maxtool import nn
    from maxtool.dtype import DType
    from maxtool.graph import Weight, ops, DeviceRef
    class Linear(nn.Module):
        def __init__(self, in_dim, out_dim):
            super().__init__()
            self.weight = Weight("weight", DType.float32, (in_dim, out_dim), DeviceRef.CPU())
        def __call__(self, x):
            return x @ self.weight.T
    class MLP(nn.Module):
        def __init__(self):
            self.up = Linear(5, 10)
            self.gate = Linear(5, 10)
            self.down = Linear(10, 5)
        def __call__(self, x):
            return self.down(ops.silu(self.gate(x)) + self.up(x))
    model = MLP()
    print(model.state_dict()) # {"up.weight": Buffer([5, 10]), ...}

    assert capsys.readouterr().out.startswith("{'up.weight': ")
    state = model.state_dict()
    assert list(state) == ["up.weight", "gate.weight", "down.weight"]
    assert [tuple(value.shape) for value in state.values()] == [(5, 10), (5, 10), (10, 5)]
    assert not any(np.asarray(value).any() for value in state.values())
    # "finalize the weight names to be unique within the model"
    assert {name: weight.name for name, weight in model.raw_state_dict().items()} == {
        name: name for name in state
    }
    # x @ weight.T with weights of (in, out): it maps 10 to 10
    rows = np.random.default_rng(0)
    weights = {name: rows.normal(size=value.shape).astype(np.float32)
               for name, value in state.items()}
    model.load_state_dict(weights)
    x = rows.normal(size=(2, 10)).astype(np.float32)
    up, gate, down = (weights[name] for name in state)
    gated = x @ gate.T
    expected = (gated / (1 + np.exp(-gated)) + x @ up.T) @ down.T
    compiled = model.compile(TensorType(DType.float32, ["rows", 10], DeviceRef.CPU()))
    np.testing.assert_allclose(compiled(x).to_numpy(), expected, rtol=1e-4, atol=1e-5)


@example("module_graph", 40, 51)
def test_build_subgraph() -> None:
    class Stack(nn.Module):
        def __init__(self):
            self.layers = nn.ModuleList([nn.Linear(4, 4, DType.float32, DeviceRef.CPU())
                                        for _ in range(3)])
        def __call__(self, *h):
            input_types = [hidden.type for hidden in h]
            subgraph = self.layers[0].build_subgraph(
                "transformer_block",
                input_types=input_types,
                weight_prefix="layers.0.",
            )
            # Call it once per layer with the correct weight prefix.
            for idx in range(len(self.layers)):
                outputs = ops.call(
                    subgraph, *h, prefix=f"layers.{idx}."
                )
                h = [x.tensor for x in outputs]
            return h[0]

    model = Stack()
    rows = np.random.default_rng(0)
    state = {f"layers.{i}.weight": rows.normal(size=(4, 4)).astype(np.float32) for i in range(3)}
    model.load_state_dict(state)
    x = rows.normal(size=(2, 4)).astype(np.float32)
    expected = x
    for weight in state.values():  # each call with its own layer's weights
        expected = expected @ weight.T
    kind = TensorType(DType.float32, ["rows", 4], DeviceRef.CPU())
    np.testing.assert_allclose(model.compile(kind)(x).to_numpy(), expected, rtol=1e-4, atol=1e-5)
    # "the compiler process the layer definition once"
    graph = Graph("stack", model, input_types=[kind])
    assert len(graph.subgraphs) == 1
