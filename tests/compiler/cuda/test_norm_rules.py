"""Norms in graphs for GPUs take in what they read, and give what is read of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from maxtool.compiler.cuda.cuda_target import cuda_target
from maxtool.compiler.kernels.requests import Request
from maxtool.compiler.lowering.module_lowering import ModuleLowering
from maxtool.compiler.lowering_plan import LoweringPlan
from maxtool.compiler.targets import Target
from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, ops
from tests.simt.model import TARGET, Simulation

DIM = 70
KIND = TensorType(DType.float32, ["rows", DIM])
RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal(DIM, dtype="f4")
X, MORE = (RNG.standard_normal((3, DIM), dtype="f4") for _ in range(2))


def norm(x: Tensor) -> Tensor:
    return ops.rms_norm(x, Tensor(WEIGHT), 1e-5)


def rms(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * WEIGHT


def half(x: np.ndarray) -> np.ndarray:
    return x + np.float32(0.5) * MORE


# A function, the kernels it becomes, and what it computes.
CASES: dict[str, tuple[Callable[..., object], list[str], list[np.ndarray]]] = {
    "a sum that is read again": (
        lambda x, y: [norm(s := x + y), s],
        ["ChainRmsNorm"],
        [rms(X + MORE), X + MORE],
    ),
    "a sum that is not": (lambda x, y: norm(x + y * 0.5), ["ChainRmsNorm"], [rms(half(X))]),
    "a sum that was needed before": (
        lambda x, y: [ops.sin(s := x + y), norm(s)],
        ["Pointwise", "RmsNorm"],
        [np.sin(X + MORE), rms(X + MORE)],
    ),
    "no sum": (lambda x, y: [norm(x), norm(y)], ["RmsNorm"] * 2, [rms(X), rms(MORE)]),
    "too long a chain": (
        lambda x, y: norm((((x + y) * y - x) * y + x) * y + x),
        ["Pointwise", "RmsNorm"],
        [rms((((X + MORE) * MORE - X) * MORE + X) * MORE + X)],
    ),
    "a sum of 16 bits": (
        lambda x, y: norm((x + y).cast(DType.float16)).cast(DType.float32),
        ["Pointwise", "RmsNormRows"],
        [rms((X + MORE).astype("f2").astype("f4"))],
    ),
}


def called(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels of the table that a graph is lowered to calls of, in order."""
    result: list[str] = []
    build = ModuleLowering.kernel

    def noted(self: ModuleLowering, request: Request, target: Target) -> object:
        result.append(type(request).__name__)
        return build(self, request, target)

    with monkeypatch.context() as patch:
        patch.setattr(ModuleLowering, "kernel", noted)
        lowering = ModuleLowering(LoweringPlan([graph], cuda_target(TARGET)))
        lowering.entry(graph)
    return result


def ran(graph: Graph, *arrays: np.ndarray) -> Sequence[Tensor]:
    program = Simulation().program([graph])
    results = [value.type for value in graph.outputs]
    return program.function("g", program.bind({}), results)([Tensor(array) for array in arrays])


@pytest.mark.parametrize("case", CASES)
def test_a_norm(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, kernels, expected = CASES[case]
    graph = Graph("g", function, [KIND, KIND])
    names = [name for name in called(graph, monkeypatch) if re.search("Norm|Pointwise", name)]
    assert names == kernels
    for one, wanted in zip(ran(graph, X, MORE), expected, strict=True):
        rtol = 2e-3 if "16" in case else 1e-5
        np.testing.assert_allclose(one.to_numpy(), wanted, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("dtype", [DType.float16, DType.bfloat16])
def test_norms_of_layers_that_products_alone_read_are_rounded(
    dtype: DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = RNG.standard_normal((8, DIM), dtype="f4").astype(dtype.to_numpy())

    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        ones, zeros = Tensor(np.ones(DIM, "f4")), Tensor(np.zeros(DIM, "f4"))
        total = x + y
        first = ops.linear(norm(total), Tensor(matrix))
        return [first, ops.linear(ops.layer_norm(total, ones, zeros, 1e-5), Tensor(matrix)), total]

    graph = Graph("g", function, [KIND, KIND])
    names = called(graph, monkeypatch)
    assert "Narrow" not in names and "Pointwise" not in names
    first, second, total = (one.to_numpy() for one in ran(graph, X, MORE))
    np.testing.assert_array_equal(total, X + MORE)
    wide = matrix.astype("f8").T
    sums = X + MORE
    layer = (sums - sums.mean(-1, keepdims=True)) / np.sqrt(sums.var(-1, keepdims=True) + 1e-5)
    rtol = 4 * float(np.finfo(np.float16).eps if dtype is DType.float16 else 2**-7)
    for actual, normal in ((first, rms(sums)), (second, layer)):
        expected = normal @ wide
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * abs(expected).max())
