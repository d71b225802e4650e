"""Dimensions, shapes, types and broadcasting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxtool.dtype import DType
from maxtool.graph import BufferType, DeviceRef, Dim, Shape, TensorType
from maxtool.graph.ops.elementwise import broadcast

sizes = st.lists(st.integers(0, 4), max_size=4)


def test_a_dimension_equals_its_size_or_name() -> None:
    assert Dim(3) == 3 == Dim(np.int64(3))
    assert Dim("n") == "n" == Dim(Dim("n"))
    assert Dim(3) != Dim("n")
    assert Dim(3) != 3.5
    assert np.int64(3) == Dim(3)
    assert len({Dim(3), 3, Dim("n"), "n"}) == 2


@pytest.mark.parametrize("value", [2.5, None, [1]])
def test_a_dimension_is_a_whole_number_or_a_name(value: object) -> None:
    with pytest.raises(TypeError):
        Dim(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1, "", "two words", "3"])
def test_a_dimension_that_cannot_be(value: int | str) -> None:
    with pytest.raises(ValueError, match=r"dimension"):
        Dim(value)


def test_a_symbolic_dimension_has_no_number_yet() -> None:
    with pytest.raises(TypeError, match="'n' is symbolic"):
        int(Dim("n"))
    assert not Shape(["n", 2]).is_static


def test_a_shape_equals_the_same_sizes_in_any_sequence() -> None:
    shape = Shape(["n", 3])
    assert shape == ["n", 3]
    assert shape == ("n", Dim(3))
    assert shape != ["n"]
    assert shape != ["n", 3.5]
    assert shape[1:] == [3]
    assert shape + Shape([2]) == ["n", 3, 2]
    assert hash(Shape([2, 3])) == hash(Shape((2, 3)))
    assert repr(shape) == "[n, 3]"


def test_a_shape_that_knows_its_sizes_gives_them() -> None:
    assert Shape([2, 3]).static() == (2, 3)
    assert Shape(["n", 3, "m", 2]).volume() == (6, {"n": 1, "m": 1})
    assert Shape(["n", "n"]).volume() != Shape(["n"]).volume()


def test_a_buffer_is_another_type_than_a_tensor() -> None:
    tensor, buffer = (kind(DType.float32, ["n", 2]) for kind in (TensorType, BufferType))
    assert tensor == TensorType(DType.float32, ("n", 2))
    assert tensor != buffer
    assert tensor != TensorType(DType.float32, ["n", 2], DeviceRef.GPU())
    assert (str(tensor), str(buffer)) == ("float32[n, 2]", "buffer float32[n, 2]")


@given(sizes, sizes)
def test_known_sizes_broadcast_as_numpy_says(one: list[int], two: list[int]) -> None:
    try:
        expected = list(np.broadcast_shapes(tuple(one), tuple(two)))
    except ValueError:
        with pytest.raises(ValueError, match="do not broadcast"):
            broadcast(Shape(one), Shape(two))
        return
    assert broadcast(Shape(one), Shape(two)) == expected


def test_a_symbolic_size_broadcasts_with_itself_and_with_one() -> None:
    assert broadcast(Shape(["n", 1]), Shape(["n", 4])) == ["n", 4]
    assert broadcast(Shape([1]), Shape(["n"])) == ["n"]
    for other in (["m"], [4]):
        with pytest.raises(ValueError, match="do not broadcast"):
            broadcast(Shape(["n"]), Shape(other))
