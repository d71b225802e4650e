"""Sizes that a check of a module gives its named dimensions."""

from __future__ import annotations

import pytest

from maxtool.artifact.claimed_sizes import fitting
from maxtool.artifact.contents import NamedGraph
from maxtool.artifact.module_check import MANY, sizes_of
from maxtool.dtype import DType
from maxtool.graph import Dim, Graph, TensorType, ops


@pytest.mark.parametrize(("pixels", "largest"), [(64, MANY), (2048, 8)])
def test_as_many_as_are_affordable(pixels: int, largest: int) -> None:
    kind = TensorType(DType.float32, ["batch", pixels, pixels, 3])
    graph = Graph("g", lambda x: [ops.relu(x)], [kind])
    sizes = [each["batch"] for each in sizes_of(NamedGraph("g", "g", graph, ("x",), ("y",)))]
    assert max(sizes) == largest


def test_sizes_that_a_claim_does_not_say_are_tried() -> None:
    """An exporter has left the length of its example in a product; a height is divided."""
    b, t, h = Dim("b"), Dim("t"), Dim("h")
    assert fitting({"b": 3, "t": 8}, [(b * t * 16, b * 80)]) == {"b": 3, "t": 5}
    assert fitting({"h": 8}, [((h + 15) // 48, Dim(1))]) == {"h": 33}
    claims = [(b * ((h + 15) // 48), b), (t, h + 1)]
    assert fitting({"b": 2, "h": 90, "t": 7}, claims) == {"b": 2, "h": 80, "t": 81}


def test_claims_do_not_hold_of_what_is_empty() -> None:
    """A product is the same where another factor is nothing; the claim of one name says more."""
    b, h, w = Dim("b"), Dim("h"), Dim("w")
    columns, rows = (w + 3) // 8, (h + 15) // 48
    claims = [(b * columns * rows, b * columns), (rows, Dim(1))]
    assert fitting({"b": 1, "h": 20, "w": 9}, claims) == {"b": 1, "h": 33, "w": 9}
