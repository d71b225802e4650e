"""The layout of treemaps, and names in them."""

from __future__ import annotations

import itertools
import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxtool.cli.pages.treemap import Box, Cluster, Tile, shortened, squarified, treemap

SIZES = st.lists(st.integers(1, 10**12), max_size=60).map(lambda one: sorted(one, reverse=True))
SIDES = st.integers(1, 4000)


@given(SIZES, SIDES, SIDES)
def test_areas_are_sizes_and_fill_the_box(sizes: list[int], width: int, height: int) -> None:
    boxes = squarified(sizes, Box(0, 0, width, height))
    assert len(boxes) == len(sizes)
    for size, box in zip(sizes, boxes, strict=True):
        share = size / sum(sizes)
        assert box.width * box.height == pytest.approx(width * height * share, rel=1e-6)
        assert box.x >= -1e-9
        assert box.x + box.width <= width * (1 + 1e-9)
        assert box.y + box.height <= height * (1 + 1e-9)
    for one, other in itertools.combinations(boxes, 2):
        assert overlap(one, other) <= 1e-6 * width * height


def overlap(one: Box, other: Box) -> float:
    wide = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
    high = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
    return max(wide, 0.0) * max(high, 0.0)


def test_the_published_example() -> None:
    """Sizes and rectangles of Bruls, Huizing and van Wijk, figure 4."""
    boxes = squarified([6, 6, 4, 3, 2, 2, 1], Box(0, 0, 6, 4))
    assert boxes[:3] == [
        pytest.approx((0, 0, 3, 2)),
        pytest.approx((0, 2, 3, 2)),
        pytest.approx((3, 0, 12 / 7, 7 / 3)),
    ]
    assert max(max(box.width / box.height, box.height / box.width) for box in boxes) < 3


def test_equal_sizes_are_squares_where_they_can_be() -> None:
    boxes = squarified([1.0] * 16, Box(0, 0, 400, 400))
    assert all(math.isclose(box.width, box.height) for box in boxes)


def test_tiles_have_tooltips_and_no_tile_is_empty() -> None:
    tiles = (
        Tile("a<b", 3, ["a<b", "Q4_K\n"], "t0"),
        Tile("none", 0, ()),
        Tile("c", 1, ["c"], "t1"),
    )
    picture = treemap([Cluster("blk.0", tiles), Cluster("empty", ())], label="x")
    root = ElementTree.fromstring(picture)  # noqa: S314 - our own
    assert [one.text for one in root.iter("title")] == ["a<b\nQ4_K\\n", "c"]
    rects = [one for one in root.iter("rect") if one.find("title") is not None]
    areas = [float(one.get("width", "")) * float(one.get("height", "")) for one in rects]
    assert areas[0] == pytest.approx(3 * areas[1], rel=1e-3)


@pytest.mark.parametrize(
    ("most", "expected"),
    [(99, "mlp.experts.*.gate_proj"), (16, "*.gate_proj"), (9, "gate_proj"), (6, "gate_…")],
)
def test_names_lose_their_first_segments_first(most: int, expected: str) -> None:
    assert shortened("mlp.experts.*.gate_proj.weight", most) == expected
