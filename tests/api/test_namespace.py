"""A module's names are its user's: only those that the documents of its style have are taken."""

from __future__ import annotations

import copy
from dataclasses import make_dataclass
from typing import Any

import numpy as np
import pytest

from docs.api_names import load
from maxtool import nn
from maxtool.dtype import DType
from maxtool.experimental.nn import Module as EagerModule
from maxtool.graph import Tensor, TensorType, Weight
from maxtool.nn import eager
from maxtool.nn.tracing import trace

Array = np.ndarray[Any, Any]
# Observed of the reference, though its document does not have them (`Module.compile`), or a way to
# say what a module computes that both styles have (`forward`).
GRAPH_TOO = {"compile", "forward", "named_modules", "replace_module"}
OF_LISTS = {name for name in dir(list) if not name.startswith("_")}
ROWS = TensorType(DType.float32, ["rows", 2])


def documented(*classes: str) -> set[str]:
    """The names that the documents have of classes."""
    owned = [name.name.rpartition(".") for name in load()]
    return {name for owner, _, name in owned if owner in classes}


GRAPH = documented("max.nn.Module", "max.pipelines.nn.layer.LayerV2") | GRAPH_TOO
EAGER = documented("max.nn.module_v3.Module", "max.experimental.nn.module.Module")


def public(type_: type) -> set[str]:
    return {name for name in dir(type_) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (nn.Module, GRAPH),
        (nn.ModuleList, GRAPH | OF_LISTS),
        (nn.LayerList, GRAPH | OF_LISTS),
        (nn.Sequential, GRAPH | OF_LISTS),
        (nn.ReLU, GRAPH),
        (eager.Module, EAGER),
        (eager.ModuleList, EAGER | OF_LISTS),
        (eager.Sequential, EAGER | OF_LISTS),
        (eager.Linear, EAGER | documented("max.nn.module_v3.Linear")),
        (eager.Embedding, EAGER | documented("max.nn.module_v3.Embedding")),
        (eager.ReLU, EAGER),
    ],
)
def test_the_names_of_a_class_are_those_of_its_document(kind: type, names: set[str]) -> None:
    inputs = {name for name in vars(kind).get("__annotations__", ()) if name[0] != "_"}
    assert public(kind) | inputs == names  # attributes that only an instance has, too


@pytest.mark.parametrize("kind", [nn.Module, eager.Module])
def test_what_is_private_says_whose_it_is(kind: type) -> None:
    private = {name for name in dir(kind) if name[0] == "_" and not name.startswith("__")}
    assert {name for name in private if not name.startswith("_maxtool_")} <= {"_is_protocol"}


def bound(name: str) -> Weight:
    weight = Weight(name, DType.float32, [2])
    weight.bind(np.ones(2, np.float32))
    return weight


class Scale(nn.Module):
    def __init__(self, name: str) -> None:
        setattr(self, name, bound("weight"))
        self.kept = name

    def __call__(self, x: Tensor) -> Tensor:
        return x * getattr(self, self.kept)


class Parent(nn.Module):
    """Calls the modules at an attribute: one, or those in a list."""

    def __init__(self, name: str, child: Any) -> None:
        setattr(self, name, child)
        self.kept = name

    def __call__(self, x: Tensor) -> Tensor:
        child: Any = getattr(self, self.kept)
        for layer in child if isinstance(child, list) else [child]:
            x = layer(x)
        return x


FREE_IN_GRAPH = sorted(
    (EAGER - GRAPH) | {"forward", "trace", "shared_weights", "tree_items", "finalize_names"}
    | {"sharding_of", "lists_every_path", "holds_containers", "_device", "_shared_weights"}
)  # fmt: skip


@pytest.mark.parametrize("name", FREE_IN_GRAPH)
def test_names_that_are_free_in_graph_style(name: str) -> None:
    one = Parent(name, Scale(name))
    several = Parent(name, nn.ModuleList([Scale(name), Scale(name)]))
    tied = Parent(name, Scale(name))
    tied.set_shared_weight("tied", getattr(getattr(tied, name), name))
    for model, names in (
        (one, {f"{name}.weight"}),
        (several, {f"{name}.0.weight", f"{name}.1.weight"}),
        (tied, {f"{name}.weight"}),
    ):
        state = {one: np.full(2, 3, np.float32) for one in names}
        assert model.state_dict().keys() == model.raw_state_dict().keys() == names
        model.load_state_dict(state)
        again = copy.deepcopy(model)
        expected = 3.0 ** len(names)
        for built in (model, again):
            result = built(Tensor(np.ones((1, 2), np.float32))).to_numpy()
            assert result.tolist() == [[expected, expected]]
            graph = trace(built, "g", [ROWS])
            assert set(graph.weight_values) == names
        assert [path for path, _ in model.named_modules()][:2] == ["", f"{name}."]
        assert repr(model) == f"Parent(1 layers, {int('tied' in vars(model))} weights)"


class EagerScale(EagerModule):
    def __init__(self, name: str) -> None:
        setattr(self, name, Tensor(np.full(2, 2, np.float32)))
        self.kept = name

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x * getattr(self, self.kept)
        return result


class EagerParent(EagerModule):
    def __init__(self, name: str) -> None:
        setattr(self, name, eager.Sequential(EagerScale(name), EagerScale(name)))
        self.kept = name

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = getattr(self, self.kept)(x)
        return result


FREE_IN_EAGER = sorted(
    (GRAPH - EAGER) | {"trace", "shared_weights", "tree_items", "finalize_names", "sharding_of"}
    | {"lists_every_path", "holds_containers", "may_be_undefined", "_device", "_arguments"}
)  # fmt: skip


@pytest.mark.parametrize("name", FREE_IN_EAGER)
def test_names_that_are_free_in_eager_style(name: str) -> None:
    model = EagerParent(name)
    names = [f"{name}.0.{name}", f"{name}.1.{name}"]
    assert [path for path, _ in model.parameters] == names
    assert [path for path, _ in model.descendants] == [name, f"{name}.0", f"{name}.1"]
    model.load_state_dict({one: np.full(2, 3, np.float32) for one in names})
    x = Tensor(np.ones((1, 2), np.float32))
    doubled = model.map_parameters(lambda _, tensor: Tensor(tensor.to_numpy() * 2))
    assert model(x).to_numpy().tolist() == [[9, 9]]
    assert doubled(x).to_numpy().tolist() == [[36, 36]]
    assert model.to(model.device) is model
    assert len(trace(model, "g", [ROWS]).weight_values) == 2
    assert name in repr(model)


@pytest.mark.parametrize("name", [name for name in FREE_IN_EAGER if name[0] != "_"])
def test_fields_of_a_dataclass(name: str) -> None:
    plain = make_dataclass("Plain", [(name, Tensor)], bases=(EagerModule,), eq=False, repr=False)
    model = plain(Tensor(np.ones(2, np.float32)))
    model.load_state_dict({name: np.zeros(2, np.float32)})
    assert [path for path, _ in model.parameters] == [name]
    assert repr(model).startswith(f"Plain(\n    {name}=Tensor(")
