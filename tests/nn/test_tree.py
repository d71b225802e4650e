"""The tree: what is found, what it is called, containers, hooks, calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from maxtool.driver import CPU
from maxtool.dtype import DType
from maxtool.graph import Tensor, Weight
from maxtool.nn import Linear, Module, ModuleList, Sequential, add_layer_hook, clear_hooks, eager


class Leaf(Module[[float], float]):
    def __init__(self, add: float = 1.0) -> None:
        self.weight = Weight("weight", DType.float32, [2])
        self.add = add

    def forward(self, x: float) -> float:
        return x + self.add


class Pair(Module[[float], float]):
    def __init__(self) -> None:
        self.first = Leaf(1.0)
        self.scale = Weight("scale", DType.float32, [3])
        self.second = Leaf(2.0)

    def forward(self, x: float) -> float:
        return self.second(self.first(x))


@pytest.fixture(autouse=True)
def no_hooks() -> Iterator[None]:
    yield
    clear_hooks()


def test_weights_are_named_by_their_paths() -> None:
    pair = Pair()
    names = ["scale", "first.weight", "second.weight"]
    assert list(pair.raw_state_dict()) == names
    assert list(pair.layer_weights) == ["scale"]
    assert pair.sublayers == {"first": pair.first, "second": pair.second}
    assert [name for name, _ in pair.named_modules()] == ["", "first.", "second."]
    assert repr(pair) == "Pair(2 layers, 1 weights)"
    pair.state_dict()
    assert pair.first.weight.name == "first.weight"


def test_a_weights_own_name_is_the_last_part() -> None:
    leaf = Leaf()
    leaf.extra = Weight("bar", DType.float32, [1])  # type: ignore[attr-defined]
    assert list(leaf.raw_state_dict()) == ["weight", "bar"]


def test_two_tensors_of_one_name() -> None:
    leaf = Leaf()
    leaf.other = Weight("weight", DType.float32, [2])  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"two tensors are named 'weight': .*'weight' and 'other'"):
        leaf.state_dict()


def test_setting_and_deleting_attributes_changes_the_tree() -> None:
    pair = Pair()
    pair.second = None  # type: ignore[assignment]
    del pair.first
    assert list(pair.raw_state_dict()) == ["scale"]


def test_a_module_in_two_places_is_listed_once() -> None:
    pair = Pair()
    pair.second = pair.first
    assert list(pair.raw_state_dict()) == ["scale", "first.weight"]


def test_a_cycle_is_walked_once() -> None:
    pair = Pair()
    pair.first.parent = pair  # type: ignore[attr-defined]
    assert list(pair.raw_state_dict()) == ["scale", "first.weight", "second.weight"]


def test_a_shared_weight_is_listed_under_its_owner() -> None:
    pair = Pair()
    pair.second.set_shared_weight("weight", pair.first.weight)
    assert list(pair.raw_state_dict()) == ["scale", "first.weight"]
    assert pair.second.weight is pair.first.weight
    assert pair.second.layer_weights == {"weight": pair.first.weight}


def test_a_parent_may_share_the_weight_of_a_child_under_another_name() -> None:
    pair = Pair()
    pair.set_shared_weight("tied", pair.first.weight)
    assert list(pair.raw_state_dict()) == ["scale", "first.weight", "second.weight"]


def test_a_list_names_its_items_by_position_whatever_happens_to_it() -> None:
    items = [Leaf(float(index)) for index in range(6)]
    layers = ModuleList(items[:2])
    layers.append(items[2])
    layers.insert(0, items[3])
    layers.extend([items[4], items[5]])
    del layers[1]
    layers[0], layers[-1] = layers[-1], layers[0]
    layers += [items[0]]
    assert [layer.add for layer in layers] == [5, 1, 2, 4, 3, 0]
    assert list(layers.sublayers) == ["0", "1", "2", "3", "4", "5"]
    assert list(layers.raw_state_dict())[-1] == "5.weight"
    assert layers.pop() is items[0]
    assert [layer.add for layer in layers[1:3]] == [1, 2]
    layers.clear()
    assert list(layers.raw_state_dict()) == []


def test_a_list_cannot_be_called_and_a_sequence_calls_its_items() -> None:
    with pytest.raises(NotImplementedError, match="ModuleList"):
        ModuleList([Leaf()])(1.0)
    assert Sequential(Leaf(1.0), Leaf(2.0))(0.5) == 3.5  # type: ignore[arg-type]
    x = Tensor(1.0)
    assert Sequential()(x) is x


def test_lists_are_told_apart_by_identity() -> None:
    left, right = ModuleList([Leaf()]), ModuleList([Leaf()])
    assert len({left, right}) == 2


class Typed(ModuleList[Leaf]):
    """Generics: a list of one kind of module, subscripted as a class."""


def test_generic_modules() -> None:
    assert Typed([Leaf(2.0)])[0].add == 2
    assert ModuleList[Leaf]([Leaf(3.0)])[0].add == 3


def test_a_module_without_forward() -> None:
    class Empty(Module[..., Any]):
        pass

    class Unsaid(eager.Module[..., Any]):
        pass

    with pytest.raises(TypeError, match="Empty defines neither forward nor __call__"):
        Empty()
    with pytest.raises(NotImplementedError, match="Unsaid defines neither"):
        Unsaid()()
    with pytest.raises(NotImplementedError, match="ModuleList is not called"):
        ModuleList([])()


class Calls(Module[[float], float]):
    def __call__(self, x: float) -> float:
        return x * 2


class CallsItsParent(Calls):
    def __call__(self, x: float) -> float:
        return super().__call__(x) + 1


class Forwards(Leaf):
    def __call__(self, x: float) -> float:
        return super().__call__(x) * 10


def test_hooks_run_once_around_call_or_forward() -> None:
    seen: list[Module[..., Any]] = []
    add_layer_hook(lambda layer, *_: seen.append(layer))
    layers = [Calls(), CallsItsParent(), Forwards()]
    assert [layer(3.0) for layer in layers] == [6, 7, 40]
    assert seen == layers


def test_hooks_run_in_order_children_first_and_may_replace() -> None:
    seen: list[tuple[str, Any, Any, Any]] = []

    def look(layer: Any, args: Any, kwargs: Any, outputs: Any) -> None:
        seen.append((type(layer).__name__, args, kwargs, outputs))

    def replace(layer: Any, _args: Any, _kwargs: Any, outputs: Any) -> Any:
        return -outputs if isinstance(layer, Leaf) else None

    add_layer_hook(look)
    add_layer_hook(replace)
    add_layer_hook(look)
    pair = Pair()
    assert pair(x=1.0) == -(-2.0 + 2.0)
    assert [name for name, *_ in seen] == ["Leaf", "Leaf", "Leaf", "Leaf", "Pair", "Pair"]
    assert [outputs for *_, outputs in seen[:2]] == [2.0, -2.0]
    assert seen[4][1:3] == ((1.0,), {})  # by position where it may be
    clear_hooks()
    assert pair(1.0) == 4.0


def test_an_error_in_a_hook_passes_through() -> None:
    def fail(*_: Any) -> None:
        raise KeyError("hook")

    add_layer_hook(fail)
    with pytest.raises(KeyError, match="hook"):
        Leaf()(1.0)


@dataclass(eq=False)
class Plain(Module[[Tensor], Tensor]):
    weight: Tensor
    bias: Tensor | int = 0

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T + self.bias


def test_a_dataclass_of_plain_tensors_is_a_module() -> None:
    layer = Plain(Tensor(np.ones((2, 3), np.float32)))
    assert list(layer.state_dict()) == ["weight"]
    got = layer(Tensor(np.ones((1, 3), np.float32)))
    np.testing.assert_array_equal(got.to_numpy(), [[3, 3]])


def test_linear_says_its_shape() -> None:
    layer = Linear(3, 2, has_bias=True)
    shapes = {name: value.shape for name, value in layer.raw_state_dict().items()}
    assert shapes == {"weight": [2, 3], "bias": [2]}
    assert "bias" not in Linear(3, 2).raw_state_dict()


def test_sequential_takes_modules_or_one_list_of_them() -> None:
    layers = [Linear(2, 3), Linear(3, 2)]
    for result in (Sequential(*layers), Sequential(layers), Sequential(iter(layers))):
        assert list(result.state_dict()) == ["0.weight", "1.weight"]
    assert list(Sequential([]).state_dict()) == []


def test_a_list_holds_modules_only() -> None:
    for make in (ModuleList, Sequential, eager.ModuleList):
        with pytest.raises(TypeError, match="holds modules, not int"):
            make([3])
    with pytest.raises(TypeError, match=r"Sequential holds modules, not list"):
        eager.Sequential([eager.Linear(2, 2)])


class Takes(Module[..., float]):
    def forward(self, x: float, scale: float = 1.0, *more: float, offset: float = 0.0) -> float:
        return x * scale + sum(more) + offset


class TakesByCall(Module[..., float]):
    def __call__(self, x: float, scale: float = 1.0, **more: float) -> float:
        return x * scale + sum(more.values())


def test_hooks_get_arguments_as_they_are_declared() -> None:
    seen: list[Any] = []
    add_layer_hook(lambda _layer, args, kwargs, _outputs: seen.append((args, kwargs)))
    for layer in (Takes(), TakesByCall()):
        layer(2.0, scale=3.0)
        layer(scale=3.0, x=2.0)
        layer(2.0)
    Takes()(2.0, 3.0, 4.0, offset=5.0)
    TakesByCall()(2.0, other=5.0)
    inputs = ((2.0, 3.0), {})
    assert seen[:6] == [inputs, inputs, ((2.0,), {})] * 2  # and what is not given stays out
    assert seen[6:] == [((2.0, 3.0, 4.0), {"offset": 5.0}), ((2.0,), {"other": 5.0})]


class Said(eager.Module[..., Any]):
    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __rich_repr__(self) -> Iterator[Any]:
        yield from self.parts


def test_a_module_prints_what_it_says_of_itself() -> None:
    said = Said(1, (2,), ("name", 3), ("left", 0, 0), ("kept", 0.0, 0), (None, "text"))
    assert repr(said) == "Said(1, 2, name=3, kept=0.0, 'text')"
    assert repr(Said()) == "Said()"
    tensor = Tensor(np.eye(2, dtype=np.float32))
    shown = repr(tensor).replace("\n", "\n    ")
    assert repr(Said(("t", tensor))) == f"Said(\n    t={shown},\n)"
    assert repr(eager.Sequential(Said(1))) == "Sequential(\n    0=Said(1),\n)"

    @eager.module_dataclass
    class Both(Said):
        width: int = 3

    result = Both()
    result.parts = ("more",)
    assert repr(result) == "Both('more')"


def test_a_frozen_dataclass_is_moved_and_shares_weights() -> None:
    @eager.module_dataclass(frozen=True)
    class Moved(eager.Module[..., Any]):
        weight: Tensor

    moved = Moved(Tensor([1.0]))
    assert moved.to(CPU()) is moved
    assert moved.device == moved.weight.device == CPU()

    @dataclass(frozen=True, eq=False)
    class Tied(Module[..., Any]):
        weight: Weight

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight

    leaf = Leaf()
    tied = Tied(leaf.weight)
    tied.set_shared_weight("weight", leaf.weight)
    assert tied.weight is leaf.weight
    assert tied.raw_state_dict() == {}
