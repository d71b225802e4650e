"""Lists of modules beside Python's own list, whatever is done to both."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxtool import nn
from maxtool.dtype import DType
from maxtool.graph import Weight
from maxtool.nn.layer import LayerList, LayerV2, recursive_named_layers


class Numbered(LayerV2):
    def __init__(self, number: int) -> None:
        self.number = number
        self.weight = Weight("weight", DType.float32, [number + 1])

    def __call__(self, x: int) -> int:
        return 3 * x + self.number


POOL = [Numbered(number) for number in range(6)]
MEMBERS = st.sampled_from(POOL)
SEVERAL = st.lists(MEMBERS, max_size=3)
PLACES = st.integers(-7, 7)
SLICES = st.builds(slice, st.none() | PLACES, st.none() | PLACES, st.none() | st.sampled_from([1]))
Change = Callable[[Any], Any]


def change(name: str, *arguments: Any, **options: Any) -> Change:
    return lambda target: getattr(target, name)(*arguments, **options)


CHANGES = st.one_of(
    st.builds(change, st.just("append"), MEMBERS),
    st.builds(change, st.just("insert"), PLACES, MEMBERS),
    st.builds(change, st.sampled_from(["extend", "__iadd__"]), SEVERAL),
    st.builds(change, st.just("pop"), PLACES),
    st.builds(change, st.just("remove"), MEMBERS),
    st.builds(change, st.just("__delitem__"), PLACES | SLICES),
    st.builds(change, st.just("__setitem__"), PLACES, MEMBERS),
    st.builds(change, st.just("__setitem__"), SLICES, SEVERAL),
    st.builds(change, st.sampled_from(["reverse", "clear"])),
    st.builds(change, st.just("__imul__"), st.integers(0, 2)),
    st.just(lambda target: target.sort(key=lambda layer: layer.number)),
)


def outcome(step: Change, target: Any) -> type[Exception] | None:
    try:
        step(target)
    except (IndexError, ValueError) as error:
        return type(error)
    return None


@given(SEVERAL, st.lists(CHANGES, max_size=8))
def test_a_layer_list_does_what_a_list_does(start: list[Numbered], steps: list[Change]) -> None:
    plain, layers = list(start), LayerList(start)
    for step in steps:
        assert outcome(step, plain) is outcome(step, layers)
        assert len(plain) < 100
        assert list(layers) == plain
        assert list(layers.sublayers.items()) == [(str(i), one) for i, one in enumerate(plain)]
        first = [str(index) for index, one in enumerate(plain) if one not in plain[:index]]
        assert [name for name, _ in recursive_named_layers(layers)] == ["", *first]
        assert list(layers.raw_state_dict()) == [f"{name}.weight" for name in first]
    expected = 1
    for one in plain:
        expected = 3 * expected + one.number
    assert layers(1) == expected


def test_slices_are_lists() -> None:
    layers = LayerList(POOL[:4])
    for part in (layers[1:3], layers[::-1], layers + POOL):
        assert type(part) is list
    assert layers[1:3] == POOL[1:3]
    assert type(layers.copy()) is list
    again = copy.copy(layers)
    assert type(again) is LayerList
    assert again == layers
    again.append(POOL[4])
    assert len(layers) == 4


def test_a_layer_is_no_list_of_its_own() -> None:
    layers = LayerList(POOL[:1])
    layers.extend(POOL[1])
    layers.extend(LayerList(POOL[2:4]))
    assert list(layers) == POOL[:4]
    layers.append(LayerList(POOL[4:6]))
    assert list(layers.raw_state_dict())[-1] == "4.1.weight"


@pytest.mark.parametrize(
    "put",
    [
        lambda layers: layers.append(3),
        lambda layers: layers.insert(0, 3),
        lambda layers: layers.extend([POOL[1], 3]),
        lambda layers: layers.__iadd__([3]),
        lambda layers: layers.__setitem__(0, 3),
        lambda layers: layers.__setitem__(slice(0, 1), [3]),
        lambda _: nn.Sequential(POOL[0], 3),  # type: ignore[arg-type]
    ],
)
def test_nothing_but_modules_is_put_in(put: Change) -> None:
    layers = LayerList(POOL[:1])
    with pytest.raises(TypeError, match="holds modules, not int"):
        put(layers)
    assert list(layers) == POOL[:1]


def test_the_first_layer_takes_what_the_list_is_called_with() -> None:
    class Two(LayerV2):
        def __call__(self, x: int, *, y: int) -> int:
            return x * y

    assert LayerList([Two(), POOL[2]])(4, y=5) == 62
    assert LayerList([])("as it is") == "as it is"
    assert nn.Sequential()(3) == 3  # type: ignore[arg-type, comparison-overlap]
