"""Tensors of one value and of random numbers."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.engine import InferenceSession
from maxtool.experimental import functional as F  # noqa: N812 - as users name it
from maxtool.experimental import random
from maxtool.graph import DeviceRef, Graph, Tensor, TensorType

ROWS = TensorType(DType.float32, ["n", 3])


def test_tensors_of_one_value() -> None:
    for result, value in ((F.zeros([2, 3]), 0), (F.ones([2, 3]), 1), (F.full([2, 3], 0.5), 0.5)):
        assert result.type == TensorType(DType.float32, [2, 3])
        assert (result.to_numpy() == value).all()
    like = F.ones([2], dtype=DType.int8, device=DeviceRef.CPU(1))
    for result, value in (
        (F.zeros_like(like), 0),
        (F.ones_like(like), 1),
        (F.full_like(like, 7), 7),
    ):
        assert result.type == like.type
        assert result.to_numpy().tolist() == [value] * 2
    with pytest.raises(ValueError, match=r"full: the sizes of \[n\] are not known"):
        F.zeros(["n"])


def test_in_a_graph_sizes_may_have_names() -> None:
    def forward(x: Tensor) -> Tensor:
        return F.full(x.shape, 2.0) * x + F.ones_like(x) + F.zeros([1, 3]) + F.full([3], 0.5)

    graph = Graph("g", forward, [ROWS])
    assert max(value.num_elements() for value, _ in graph.constants) == 1  # sizes are not constants
    model = InferenceSession().load(graph)
    for rows in (1, 4):
        x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        np.testing.assert_array_equal(model(x)[0].to_numpy(), 2 * x + 1.5)


@pytest.mark.parametrize("draw", [F.uniform, random, random.uniform])
def test_numbers_drawn_evenly(draw: Any) -> None:
    random.set_seed(3)
    first = draw([200, 100], (2, 4))
    assert first.type == TensorType(DType.float32, [200, 100])
    values = first.to_numpy()
    assert 2 <= values.min() < 2.01 < 3.99 < values.max() < 4
    random.set_seed(3)
    np.testing.assert_array_equal(draw([200, 100], (2, 4)).to_numpy(), values)
    assert draw([2], dtype=DType.bfloat16).dtype is DType.bfloat16


@pytest.mark.parametrize("draw", [F.normal, F.gaussian, random.normal, random.gaussian])
def test_numbers_of_the_normal_distribution(draw: Any) -> None:
    random.set_seed(3)
    values = draw([200, 100], 5.0, 2.0).to_numpy()
    assert abs(values.mean() - 5) < 0.1
    assert abs(values.std() - 2) < 0.1
    random.set_seed(3)
    standard = Tensor.randn([200, 100], dtype=DType.float32)
    np.testing.assert_allclose(standard.to_numpy() * 2 + 5, values, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("draw", "what"),
    [
        (lambda: F.uniform([2], (1, 1)), "from 1 to 1 has no numbers"),
        (lambda: F.normal([2], std=-1.0), "scale < 0"),
        (lambda: F.normal([2], dtype=DType.int8), "floats, not int8"),
        (lambda: F.uniform(["n"]), r"uniform: the sizes of \[n\] are not known"),
        (lambda: Graph("g", lambda x: x + Tensor.randn([3]), [ROWS]), "graphs draw no random"),
    ],
)
def test_what_cannot_be_drawn(draw: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        draw()


@pytest.mark.parametrize(
    "name",
    [
        "nn.layer.add_layer_hook",
        "nn.module_v3.Linear",
        "experimental.nn.Module",
        "experimental.tensor.defaults",
        "experimental.functional.relu",
        "experimental.random.normal",
        "graph.weights.load_weights",
        "graph.quantization.QuantizationEncoding",
        "graph.ops.add",
    ],
)
def test_a_package_has_its_parts(name: str) -> None:
    """Import in a process that has imported nothing else."""
    code = f"from maxtool import {name.partition('.')[0]}; {name}"
    subprocess.run([sys.executable, "-c", code], check=True)
