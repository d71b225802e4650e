"""The corners of lists of layers and of their names, as the reference's BEHAVIOUR.md lists them.

Where this package does something else on purpose, the test says "instead"; docs/api.md lists those.
"""

from __future__ import annotations

from typing import Any

import pytest

from maxtool import nn
from maxtool.dtype import DType
from maxtool.graph import DeviceRef, Weight
from maxtool.nn.layer import recursive_named_layers


class Linear(nn.Module):
    def __init__(self, in_dim: int, out_dim: int) -> None:
        self.weight = Weight("weight", DType.float32, (out_dim, in_dim), DeviceRef.CPU())

    def __call__(self, x: Any) -> Any:
        return x @ self.weight.T


def test_recursive_named_layers_goes_breadth_first() -> None:
    class Root(nn.Module):
        def __init__(self) -> None:
            self.a = Linear(2, 2)
            self.ls = nn.LayerList([Linear(2, 2), Linear(2, 2)])

        def __call__(self, x: Any) -> Any:
            return x

    names = [name for name, _ in recursive_named_layers(Root())]
    assert names == ["", "a", "ls", "ls.0", "ls.1"]
    assert [name for name, _ in recursive_named_layers(Root(), "x")][:2] == ["x", "x.a"]


def test_a_layer_list_is_a_list() -> None:
    layers = nn.LayerList([Linear(2, 2)])
    layers.append(Linear(2, 3))
    layers.insert(0, Linear(5, 2))
    assert list(layers.state_dict()) == ["0.weight", "1.weight", "2.weight"]
    layers[1] = Linear(2, 2)
    assert layers.sublayers["1"] is layers[1]  # instead of the one before
    layers.extend([Linear(3, 3), Linear(3, 4)])
    assert len(layers) == len(layers.sublayers) == 5
    assert layers.pop() not in list(layers)
    del layers[0]
    layers.reverse()
    layers += [Linear(1, 1)]
    assert [tuple(v.shape) for v in layers.state_dict().values()] == [
        (3, 3),
        (3, 2),
        (2, 2),
        (1, 1),
    ]
    assert len(layers[1:3]) == 2
    with pytest.raises(IndexError):
        layers[9]
    layers.clear()
    assert layers.state_dict() == {}


def test_sequential_names_by_position() -> None:
    model = nn.Sequential([Linear(2, 3), Linear(3, 2)])
    assert repr(model) == "Sequential(2 layers, 0 weights)"
    assert list(model.state_dict()) == ["0.weight", "1.weight"]
