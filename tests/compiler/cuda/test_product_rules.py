"""Lowering of products for GPUs: which kernels, for which types and sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from maxtool.compiler.cuda.cuda_target import cuda_target
from maxtool.compiler.lowering.module_lowering import ModuleLowering
from maxtool.compiler.lowering_plan import LoweringPlan
from maxtool.dtype import DType
from maxtool.graph import Graph, TensorType, Weight, ops

TARGET = cuda_target("cuda:sm_90")
F32, BF16 = DType.float32, DType.bfloat16
F16, F64 = DType.float16, DType.float64


def kernels(forward: Callable[..., Any], *types: TensorType) -> list[str]:
    """The kernels that a graph becomes."""
    graph = Graph("main", forward, types)
    lowering = ModuleLowering(LoweringPlan([graph], TARGET))
    lowering.entry(graph)
    names = [str(name.name_hint) for name in lowering.module().functions]
    return sorted(name for name in names if name != "main")


def weight(name: str, dtype: DType, n: int, k: int) -> Weight:
    return Weight(name, dtype, (n, k))


@pytest.mark.parametrize(
    ("x", "w", "expected"),
    [
        (F32, F32, ["linear_float32"]),
        (F32, BF16, ["linear_bfloat16", "narrow_bfloat16"]),
        (BF16, BF16, ["cast", "linear_bfloat16"]),
        (F16, BF16, ["cast", "cast_2", "linear_bfloat16"]),
        (BF16, F32, ["cast", "cast_2", "linear_float32"]),
        (F64, F32, ["linear"]),
    ],
)
def test_linear(x: DType, w: DType, expected: list[str]) -> None:
    def forward(rows: Any) -> Any:
        return ops.linear(rows, weight("w", w, 10, 16))

    assert kernels(forward, TensorType(x, ["rows", 16])) == expected


def test_products_of_one_input_round_it_once() -> None:
    def forward(x: Any) -> Any:
        return [ops.linear(x, weight(name, BF16, 10, 16)) for name in ("a", "b", "c")]

    assert kernels(forward, TensorType(F32, ["rows", 16])) == ["linear_bfloat16", "narrow_bfloat16"]


def test_kernels_are_for_sizes_as_far_as_alignment_goes() -> None:
    def forward(x: Any, y: Any) -> Any:
        return [
            *(ops.linear(x, weight(f"x{n}", F32, n, 16)) for n in (4, 8, 3)),
            *(ops.linear(y, weight(f"y{n}", F32, n, 15)) for n in (4, 8)),
        ]

    types = (TensorType(F32, ["rows", width]) for width in (16, 15))
    expected = ["linear_float32", "linear_float32_2", "linear_float32_unaligned"]
    assert kernels(forward, *types) == expected


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ((["a", 8], [8, 4]), ["linear_float32", "permute"]),
        ((["b", "a", 8], ["b", 8, 4]), ["linear_float32_batch", "permute"]),
        ((["b", "a", "k"], ["b", "k", 4]), ["linear_float32_batch_unaligned", "permute"]),
        ((["b", "a", 8], [1, 8, 4]), ["matmul"]),
    ],
)
def test_matmul(shapes: tuple[list[Any], list[Any]], expected: list[str]) -> None:
    """Multiply without a batch, or with one of both operands, by the kernel of ``linear``."""
    types = [TensorType(F32, shape) for shape in shapes]
    assert [
        name.partition("permute")[1] or name for name in kernels(ops.matmul, *types)
    ] == expected


def test_matmul_of_a_transposed_matrix_copies_nothing() -> None:
    def forward(x: Any, y: Any) -> Any:
        return ops.matmul(x, ops.permute(y, [0, 2, 1]))

    types = [TensorType(F32, ["b", rows, 8]) for rows in ("m", "n")]
    assert kernels(forward, *types) == ["linear_float32_batch"]


@pytest.mark.parametrize(
    ("ids", "dtype", "expected"),
    [
        (DType.int64, BF16, ["embedding_10_16_bfloat16"]),
        (DType.int32, F32, ["embedding", "rows"]),
        (DType.int64, F64, ["embedding", "rows"]),
    ],
)
def test_embedding(ids: DType, dtype: DType, expected: list[str]) -> None:
    def forward(rows: Any) -> Any:
        return ops.embedding(rows, weight("w", dtype, 10, 16))

    assert kernels(forward, TensorType(ids, ["rows"])) == expected
