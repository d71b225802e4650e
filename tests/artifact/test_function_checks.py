"""The check of functions of arrays: wrong ones fail it, right ones pass it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool.artifact.module_check import tolerance
from maxtool.artifact.saving import SaveBuild, SaveRequest
from maxtool.artifact.writing import make
from maxtool.dtype import DType
from maxtool.errors import ParityFailed
from maxtool.graph import Graph, Tensor, TensorType, Weight, ops
from maxtool.nn.saving import CompiledFunction
from maxtool.runtime import loader
from tests.runtime.tiny_artifact import checksum

FILE = "weights.bin"
ROWS = TensorType(DType.float32, ["n", 16])
Weights = Mapping[str, np.ndarray[Any, Any]]


def build(
    folder: Path, forward: Callable[..., Any], *types: TensorType, weights: Weights | None = None
) -> SaveBuild:
    """A function of inputs ``a``, ``b``, ..., planned as an artifact."""
    graph = Graph("forward", forward, types)
    inputs = [chr(ord("a") + index) for index in range(len(types))]
    outputs = [f"output_{index}" for index in range(len(graph.outputs))]
    function = CompiledFunction("checked", graph, inputs, outputs, (weights or {}).__getitem__)
    return SaveBuild(
        SaveRequest(folder, "cpu", check=True, standalone=False, force=False), function
    )


def checked(folder: Path, forward: Callable[..., Any], *types: TensorType) -> str:
    """The words of a check that was passed."""
    return str(make(build(folder, forward, *types)).check)


def zero_weights(folder: Path) -> None:
    """Replace all weights of an artifact with zeros, with checksums that agree."""
    (folder / FILE).write_bytes(bytes((folder / FILE).stat().st_size))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][FILE] = checksum(folder / FILE)
    manifest["manifest_sha256"] = loader.checksum(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "bfloat16", "float16", "float32"])
def test_weights_of_zeros_fail_where_outputs_are_small(tmp_path: Path, dtype: str) -> None:
    """The shares of a hundred classes are a hundredth each, whatever the type of the weights."""
    narrow = DType(dtype)
    table = np.random.default_rng(0).normal(scale=0.3, size=(16, 100)).astype(narrow.to_numpy())

    def forward(x: Tensor) -> Tensor:
        weight = ops.cast(Weight("w", narrow, [16, 100]), DType.float32)
        return ops.softmax(ops.cast(x, DType.float32) @ weight)

    planned = build(tmp_path / "out", forward, ROWS, weights={"w": table})
    assert make(planned).check is not None
    zero_weights(tmp_path / "out")
    with pytest.raises(ParityFailed) as caught:
        planned.compare(tmp_path / "out")
    assert len(caught.value.problems) > 1


def test_each_output_has_the_tolerance_of_what_it_follows_from() -> None:
    def forward(x: Tensor) -> list[Tensor]:
        narrow = ops.cast(x, DType.float8_e4m3fn)
        half = ops.cast(ops.cast(x, DType.float16) * 2, DType.float32)
        return [x + 1, narrow, half, half + ops.cast(narrow, DType.float32), ops.argmax(half)]

    graph = Graph("several", forward, [ROWS])
    shares = [tolerance(graph, output).rtol for output in graph.outputs]
    assert shares == [1e-4, 2e-1, 2e-2, 2e-1, 2e-2]


def test_a_narrow_value_in_a_subgraph_is_seen() -> None:
    def inner(x: Tensor) -> Tensor:
        return ops.cast(ops.cast(x, DType.bfloat16) * 3, DType.float32)

    with Graph("outer", input_types=[ROWS]) as graph:
        subgraph = graph.add_subgraph("inner", inner, [ROWS])
        graph.output(graph.call(subgraph, graph.inputs[0])[0] + 1, graph.inputs[0] + 1)
    assert [tolerance(graph, one).rtol for one in graph.outputs] == [5e-2, 1e-4]
