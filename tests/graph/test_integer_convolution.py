"""Convolutions of bytes: what is refused, and sums against a loop over all terms."""

from __future__ import annotations

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, executor, ops
from maxtool.parity.evaluator import evaluate


def test_sums_of_one_window() -> None:
    """Around the image is its zero point; the largest sums are far from a float's limits."""
    x = np.full((1, 2, 2, 600), 255, "u1")
    filters = np.full((3, 3, 600, 1), -128, "i1")
    filters[0, 0] = 127

    def call(x: Tensor, f: Tensor) -> list[Tensor]:
        return [ops.integer_convolution(x, f, 7, padding=1)]

    kinds = [TensorType(DType.from_numpy(one.dtype), one.shape) for one in (x, filters)]
    graph = Graph("g", call, kinds)
    run = executor.find_executor().compile(graph, {})
    corner = 600 * 248 * (-128 * 4)
    wanted = [[corner, corner], [corner, 600 * 248 * (127 - 128 * 3)]]
    (exact,) = evaluate(graph, [x, filters])
    np.testing.assert_array_equal(exact[0, :, :, 0], wanted)
    np.testing.assert_array_equal(run(Tensor(x), Tensor(filters))[0].to_numpy(), exact)


def refused(
    x: DType = DType.uint8,
    weight: DType = DType.int8,
    zero: int = 0,
    shape: tuple[int, ...] = (3, 3, 4, 8),
    channels: int = 4,
) -> None:
    def call(x: Tensor, f: Tensor) -> list[Tensor]:
        return [ops.integer_convolution(x, f, zero)]

    Graph("g", call, [TensorType(x, [1, 9, 9, channels]), TensorType(weight, shape)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": DType.int16}, "images are of int8 or uint8, not int16"),
        ({"weight": DType.uint8}, "the filter is of int8, not uint8"),
        ({"zero": -1}, "no uint8 is -1"),
        ({"x": DType.int8, "zero": 128}, "no int8 is 128"),
        ({"channels": 5}, "the input has 4 channels"),
        ({"shape": (3, 3, 7282, 1), "channels": 7282}, "a sum has more than 65536 terms"),
    ],
)
def test_what_does_not_fit(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        refused(**arguments)  # type: ignore[arg-type]
