"""The work of convolutions, as the manifest says it."""

from __future__ import annotations

from typing import Any

from maxtool.artifact.contents import NamedGraph
from maxtool.artifact.convolution_work import PIXELS, operations
from maxtool.dtype import DType
from maxtool.graph import Graph, TensorType, Weight, ops

F32 = DType.float32


def function(call: Any, *shape: int | str, **filters: tuple[int, ...]) -> NamedGraph:
    def forward(x: Any) -> Any:
        return [call(x, **{name: Weight(name, F32, size) for name, size in filters.items()})]

    graph = Graph("g", forward, [TensorType(F32, shape)])
    return NamedGraph("g", "g", graph, ["x"], ["y"], usual={"frames": 10})


def test_every_pixel_meets_the_filter_of_its_group() -> None:
    def call(x: Any, f: Any, g: Any, h: Any) -> Any:
        y = ops.conv2d(ops.conv2d(x, f, 2, padding=1), g, groups=8)
        return ops.relu(ops.conv_transpose2d(y, h, 2))

    filters = {"f": (3, 3, 4, 8), "g": (1, 1, 1, 8), "h": (2, 2, 8, 3)}
    wanted = 2 * (30 * 288 + 30 * 8 + 30 * 96)
    assert operations(function(call, 1, 10, 12, 4, **filters)) == wanted
    assert operations(function(call, "n", 10, 12, 4, **filters)) == wanted
    assert operations(function(call, 5, 10, 12, 4, **filters)) == 5 * wanted


def test_sizes_that_have_names() -> None:
    def call(x: Any, f: Any) -> Any:
        return ops.conv1d(x, f)

    filters = {"f": (3, 4, 8)}
    assert operations(function(call, "n", "frames", 4, **filters)) == 2 * 8 * 96
    assert operations(function(call, "n", "length", 4, **filters)) == 2 * (PIXELS - 2) * 96
    assert operations(function(lambda x: ops.relu(x), "n", 4)) == 0
