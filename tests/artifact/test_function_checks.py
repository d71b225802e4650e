"""The check of functions of arrays: wrong ones fail it, right ones pass it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
