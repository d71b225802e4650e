"""Dimensions, shapes, types and broadcasting."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxtool.dtype import DType
from maxtool.graph import (
    AlgebraicDim,
    BufferType,
    DeviceRef,
    Dim,
    Shape,
    StaticDim,
    SymbolicDim,
    TensorType,
)
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
    assert Shape(["n", 3, "m", 2]).volume() == 6 * Dim("m") * Dim("n")
    assert Shape([]).volume() == 1
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


NAMES = {"n": 7, "m": 4, "k": 1}
leaves = st.sampled_from(list(NAMES)).map(Dim) | st.integers(0, 5).map(Dim)
Valued = tuple[Dim, int]


def _combined(pair: st.SearchStrategy[Valued]) -> st.SearchStrategy[Valued]:
    def sums(left: Valued, right: Valued, factor: int) -> Valued:
        return left[0] + right[0] * factor, left[1] + right[1] * factor

    def products(one: Valued, two: Valued) -> Valued:
        return one[0] * two[0], one[1] * two[1]

    def quotients(valued: Valued, divisor: int) -> Valued:
        return (valued[0] + 60 * Dim("n")) // divisor, (valued[1] + 60 * NAMES["n"]) // divisor

    positive = st.integers(1, 4)
    return (
        st.builds(sums, pair, pair, st.integers(0, 3))
        | st.builds(products, pair, pair)
        | st.builds(quotients, pair, positive)
    )


expressions = st.recursive(leaves.map(lambda dim: (dim, dim.size(NAMES))), _combined, max_leaves=5)


@given(expressions, expressions)
def test_dimensions_are_computed_as_numbers_are(one: Valued, two: Valued) -> None:
    assert one[0].size(NAMES) == one[1]
    assert (one[0] + two[0]).size(NAMES) == one[1] + two[1]
    assert one[0] + two[0] == two[0] + one[0]
    assert one[0] + two[0] - two[0] == one[0]
    assert one[0] * 3 // 3 == one[0]
    assert hash(one[0] + two[0]) == hash(two[0] + one[0])
    names = {name: Dim(name) for name in NAMES}
    assert eval(str(one[0]), dict(names)) == one[0]  # noqa: S307 - what it prints is what it is


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (Dim("n") + 1, "n + 1"),
        (2 * Dim("n") * Dim("m") - 3, "2 * m * n - 3"),
        ((Dim("n") + 5) // 2, "(n + 1) // 2 + 2"),
        ((2 * Dim("n") + 4) // 2, "n + 2"),
        (1 - Dim("n"), "-n + 1"),
        ((3 * Dim("n") * Dim("m")) // Dim("n"), "3 * m"),
        (Dim("n") - "n", "0"),
    ],
)
def test_an_expression_has_one_form(dim: Dim, text: str) -> None:
    assert str(dim) == text


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Dim(3) - 5, ValueError, "cannot be -2"),
        (lambda: Dim("n") // 0, ValueError, "cannot be divided by 0"),
        (lambda: (Dim("n") + 1) // Dim("n"), ValueError, "cannot be divided by n"),
        (lambda: Dim("n") + 1.5, TypeError, "unsupported operand"),
        (lambda: int(Dim("n") + 1), TypeError, "symbolic"),
        (lambda: (Dim("n") + 1).size({"m": 1}), KeyError, "n"),
    ],
)
def test_expressions_that_cannot_be(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


def test_each_kind_of_dimension_is_a_class() -> None:
    n, three = Dim("n"), Dim(3)
    assert [type(one) for one in (three, n, n * 5, n - n, (n + 1) - 1)] == [
        StaticDim,
        SymbolicDim,
        AlgebraicDim,
        StaticDim,
        SymbolicDim,
    ]
    assert type(Dim(np.int64(3))) is type(StaticDim(three)) is StaticDim
    assert (SymbolicDim("n"), StaticDim(3)) == (n, three)
    assert {SymbolicDim("n"): 1}[Dim("n")] == {3: 1}[three] == 1  # type: ignore[index]
    assert (SymbolicDim("n").name, StaticDim(3).dim) == ("n", 3)
    assert list((n * Dim("m") + 1).parameters) == [Dim("m"), n]
    assert list(three.parameters) == []
    assert TensorType(DType.float32, [SymbolicDim("n"), StaticDim(3)]).shape == ["n", 3]
    for one in (three, n, n * 5):
        for copied in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):  # noqa: S301
            assert copied == one
            assert type(copied) is type(one)


def test_known_sizes_have_an_order() -> None:
    two, three = StaticDim(2), StaticDim(3)
    assert two < three <= 3
    assert 4 > three >= two
    assert sorted([three, two]) == [2, 3]
    with pytest.raises(TypeError, match="not supported"):
        assert three < Dim("n")


def test_a_dimension_may_be_negated_on_the_way() -> None:
    x = Dim("x")
    assert 4 - -x == x + 4
    assert -x - 4 == -(x + 4)
    assert 6 // StaticDim(4) == 1


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: StaticDim("n"), "'n' is not a valid StaticDim"),
        (lambda: SymbolicDim(3), "3 is not a valid SymbolicDim"),
        (lambda: AlgebraicDim("n"), "'n' is not a valid AlgebraicDim"),
        (lambda: StaticDim(2.5), "float"),  # type: ignore[arg-type]
    ],
)
def test_a_value_of_another_kind(make: Any, what: str) -> None:
    with pytest.raises(TypeError, match=what):
        make()
