"""The check of functions of arrays: wrong ones fail it, right ones pass it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool.artifact import check_lengths
from maxtool.artifact.check import GRAPH, RecordedChecks, check
from maxtool.artifact.module_check import MANY, sizes_of, tolerance
from maxtool.artifact.planned import Planned
from maxtool.artifact.request import SaveRequest
from maxtool.artifact.saving import planned as plan
from maxtool.artifact.writing import make
from maxtool.compiler.cpu_target import TILES
from maxtool.compiler.kernels.cpu import key_block
from maxtool.compiler.kernels.cuda import experts, flash_mma, linear
from maxtool.dtype import DType
from maxtool.errors import InputError, ParityFailed
from maxtool.graph import Graph, Tensor, TensorType, Weight, ops
from maxtool.nn.saving import CompiledFunction
from maxtool.runtime import loader
from maxtool.runtime.loader.recorded_checks import RecordedCall, RecordedCheck, Tolerance
from maxtool.weights.weight_data import WeightData
from tests.runtime.tiny_artifact import checksum

FILE = "weights.bin"
ROWS = TensorType(DType.float32, ["n", 16])
Weights = Mapping[str, np.ndarray[Any, Any]]


def build(
    folder: Path, forward: Callable[..., Any], *types: TensorType, weights: Weights | None = None
) -> Planned:
    """A function of inputs ``a``, ``b``, ..., planned as an artifact."""
    graph = Graph("forward", forward, types)
    inputs = [chr(ord("a") + index) for index in range(len(types))]
    outputs = [f"output_{index}" for index in range(len(graph.outputs))]

    def weight(name: str) -> WeightData:
        return WeightData.from_numpy((weights or {})[name], name)

    function = CompiledFunction("checked", graph, inputs, outputs, weight)
    return plan(function, SaveRequest(folder, check=True))


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
    assert [tolerance(graph, output).rtol for output in graph.outputs] == [5e-2, 1e-4]


def infinite(x: Tensor) -> list[Tensor]:
    """Compute NaN, infinities and finite values, as the graph says."""
    return [ops.log(x), ops.where(x > 0, x, float("-inf"))]


def test_right_nan_and_infinities_pass(tmp_path: Path) -> None:
    assert "relative error" in checked(tmp_path / "out", infinite, ROWS)


def test_an_output_without_elements_passes(tmp_path: Path) -> None:
    """The fifth row and those behind it: there may be none."""
    assert "relative error" in checked(tmp_path / "out", lambda x: x[5:] * 2, ROWS)


def test_whole_numbers_are_counted(tmp_path: Path) -> None:
    said = checked(tmp_path / "out", lambda x: [ops.argmax(x), x > 0], ROWS)
    assert "whole numbers differ" in said


def wrong_trials(build: Planned, expected: np.ndarray[Any, Any]) -> RecordedChecks:
    """One call of five rows, of which something else is expected."""
    call = RecordedCall("forward", {"a": np.ones((5, 16), np.float32)})
    trial = RecordedCheck(
        "forward, a 5", [call], build.contents.functions[0].outputs[0], expected, Tolerance(0.1, 0)
    )
    return RecordedChecks((trial,), GRAPH, tokens=0, calls=1)


@pytest.mark.parametrize(
    ("expected", "problem"),
    [
        (np.zeros((5, 1), int), "forward, a 5: 5 of 5 whole numbers differ, most at [0, 0]"),
        (np.zeros(4, int), "forward, a 5: the output has shape [5, 1], the reference [4]"),
    ],
)
def test_another_output_is_one_problem(
    tmp_path: Path, expected: np.ndarray[Any, Any], problem: str
) -> None:
    planned = build(tmp_path / "out", lambda x: ops.sum(ops.cast(x, DType.int64)), ROWS)
    make(planned)
    with pytest.raises(ParityFailed) as caught:
        check(tmp_path / "out", wrong_trials(planned, expected), here=True)
    assert caught.value.problems == (problem,)


def test_an_artifact_that_cannot_be_opened_is_an_error_of_maxtool(tmp_path: Path) -> None:
    planned = build(tmp_path / "out", lambda x: x * 2, ROWS)
    make(planned)
    (tmp_path / "out" / "manifest.json").write_text("{")
    with pytest.raises(InputError, match=r"manifest\.json"):
        planned.compare(tmp_path / "out")


def rows_beyond_which_kernels_differ() -> list[int]:
    """Rows of a tile, or up to which there is another kernel."""
    tiles = [*linear.TILES, experts.TILE]
    return [
        *(one.mr for one in TILES.values()),
        key_block.ROWS,
        linear.FEW,
        experts.FEW,
        flash_mma.ROWS,
        min(tile.rows for tile in tiles),
    ]


def test_many_rows_are_more_than_any_kernel_is_chosen_by() -> None:
    thresholds = rows_beyond_which_kernels_differ()
    assert max(thresholds) < MANY
    assert all(MANY % rows for rows in thresholds if rows > 1)


def test_the_tokens_of_a_recipe_reach_the_kernels_for_many_rows() -> None:
    """An expert is given as many rows as tokens have chosen it; at least two of all are chosen."""
    assert max(linear.FEW, *(one.mr for one in TILES.values())) < check_lengths.TOKENS
    assert 2 * check_lengths.TOKENS > experts.FEW


def test_each_name_has_its_least_size_usual_ones_and_a_large_one(tmp_path: Path) -> None:
    others = TensorType(DType.float32, ["m", 16])
    planned = build(tmp_path / "out", lambda x, y: (x[1:], y[20:]), ROWS, others)
    (function,) = planned.contents.functions
    assert list(sizes_of(function)) == [
        {"n": 1, "m": 20},
        {"n": 3, "m": 21},
        {"n": 8, "m": 21},
        {"n": MANY, "m": 21},
        {"n": 8, "m": MANY},
    ]
    assert "with 5 calls" in str(make(planned).check)
