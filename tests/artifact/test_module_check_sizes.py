"""Sizes that a check of a module gives its named dimensions."""

from __future__ import annotations

import pytest

from maxtool.artifact.contents import NamedGraph
from maxtool.artifact.module_check import MANY, sizes_of
from maxtool.dtype import DType
from maxtool.graph import Graph, TensorType, ops


@pytest.mark.parametrize(("pixels", "largest"), [(64, MANY), (2048, 8)])
def test_as_many_as_are_affordable(pixels: int, largest: int) -> None:
    kind = TensorType(DType.float32, ["batch", pixels, pixels, 3])
    graph = Graph("g", lambda x: [ops.relu(x)], [kind])
    sizes = [each["batch"] for each in sizes_of(NamedGraph("g", "g", graph, ("x",), ("y",)))]
    assert max(sizes) == largest
