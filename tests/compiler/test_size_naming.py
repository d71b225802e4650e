"""Naming of sizes: those that vary, one name for those that are always equal."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.compiler.size_naming import KEPT, Named, ObservedSizes, Sizes
from maxtool.dtype import DType
from maxtool.graph import TensorType
from maxtool.graph.ops import OPS
from tests.effort import examples


def takes(op: str, sizes: Named) -> bool:
    try:
        OPS[op].infer(*(TensorType(DType.float32, size) for size in sizes))
    except ValueError:
        return False
    return True


def names(op: str, *calls: Sizes) -> list[Named]:
    """Return the sizes that each of some calls is compiled for."""
    varying = ObservedSizes()
    return [varying.named(sizes, lambda named: takes(op, named)) for sizes in calls]


def test_what_varies_gets_a_name() -> None:
    assert names("silu", ((2, 5),), ((2, 6),), ((3, 6),), ((2, 5),)) == [
        ((2, 5),),
        ((2, "n0"),),
        (("n0", "n1"),),
        (("n0", "n1"),),
    ]


def test_sizes_equal_by_chance_are_told_apart_once_they_differ() -> None:
    result = names("silu", ((5, 5),), ((6, 6),), ((6, 7),), ((8, 8),))
    assert result == [((5, 5),), (("n0", "n0"),), (("n0", "n1"),), (("n0", "n1"),)]


def test_sizes_equal_by_need_share_their_name() -> None:
    result = names("matmul", ((2, 3), (3, 4)), ((5, 6), (6, 7)), ((7, 7), (7, 7)))
    assert result[1:] == [(("n0", "n1"), ("n1", "n2"))] * 2


def test_one_is_like_any_other_size_unless_it_broadcasts() -> None:
    calls = ((2, 3), (2, 3)), ((4, 3), (4, 3)), ((1, 3), (1, 3)), ((4, 3), (1, 3)), ((9, 3), (1, 3))
    assert names("add", *calls)[2:] == [
        (("n0", 3), ("n0", 3)),
        (("n0", 3), (1, 3)),
        (("n0", 3), (1, 3)),
    ]


def test_what_came_as_one_first_varies_later() -> None:
    calls = ((1, 3),), ((1, 4),), ((2, 5),), ((3, 6),), ((1, 7),)
    assert names("silu", *calls) == [
        ((1, 3),),
        ((1, "n0"),),
        ((2, "n0"),),
        (("n0", "n1"),),
        (("n0", "n1"),),
    ]


def test_what_must_be_known_has_no_name_even_where_it_equals_what_varies() -> None:
    calls = ((5, 4), (5, 4)), ((6, 4), (6, 4)), ((7, 4), (6, 4)), ((8, 4), (5, 4)), ((9, 4), (3, 4))
    assert names("linear", *calls) == [
        ((5, 4), (5, 4)),
        (("n0", 4), (6, 4)),
        (("n0", 4), (6, 4)),
        (("n0", 4), (5, 4)),
        (("n0", 4), (3, 4)),
    ]


def test_only_so_much_is_remembered() -> None:
    widths = range(2, KEPT + 20)
    varying = ObservedSizes()
    for width in widths:
        sizes = ((2, width), (2, width))
        assert varying.named(sizes, lambda named: takes("linear", named)) is not None
    assert len(varying) <= KEPT


def pairs(most: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(1, most), st.integers(1, most))


@given(st.lists(pairs(6), min_size=1, max_size=40))
@settings(max_examples=examples(60, 300), deadline=None)
def test_any_order_of_calls_ends_with_few_programs(calls: list[tuple[int, int]]) -> None:
    """Compile for sizes as they come, for either, for both, and for those again where one is 1."""
    shapes = [((b, t, 8), (b, t, 8)) for b, t in calls]
    result = names("mul", *shapes)
    for sizes, named in zip(shapes, result, strict=True):
        assert takes("mul", named)
        numbers: dict[str, int] = {}
        for size, name in zip(sum(sizes, ()), sum(named, ()), strict=True):
            fits = size == name if isinstance(name, int) else numbers.setdefault(name, size) == size
            assert fits
    assert len(set(result)) <= 9
