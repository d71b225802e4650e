"""The types of results, and messages that name the operation and the operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, ops

F32, I32, I64 = DType.float32, DType.int32, DType.int64
BATCH = TensorType(F32, ["batch", "seq", 6])


def traced(call: Callable[..., Tensor], *types: TensorType) -> TensorType:
    return Graph("g", call, types).outputs[0].type


def kind(*shape: int | str, dtype: DType = F32) -> TensorType:
    return TensorType(dtype, shape)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x: x.reshape(["batch", "seq", 2, 3]), ["batch", "seq", 2, 3]),
        (lambda x: x.reshape(["seq", 6, "batch"]), ["seq", 6, "batch"]),
        (lambda x: x.permute([2, 0, -2]), [6, "batch", "seq"]),
        (lambda x: x.T, ["batch", 6, "seq"]),
        (lambda x: x[:, -1], ["batch", 6]),
        (lambda x: x[:, :, 1:4], ["batch", "seq", 3]),
        (lambda x: x[:, :, 4:2], ["batch", "seq", 0]),
        (lambda x: x[:, :, -2:], ["batch", "seq", 2]),
        (lambda x: x @ x.T, ["batch", "seq", "seq"]),
        (lambda x: ops.linear(x, Tensor.zeros([5, 6])), ["batch", "seq", 5]),
        (lambda x: abs(-x) / 2, ["batch", "seq", 6]),
        (lambda x: np.float32(2) * x, ["batch", "seq", 6]),
        (lambda x: np.ones((6,), np.float32) + x, ["batch", "seq", 6]),
    ],
)
def test_the_shape_of_a_result(call: Callable[[Tensor], Tensor], expected: list[int | str]) -> None:
    assert traced(call, BATCH) == TensorType(F32, expected)


@pytest.mark.parametrize(
    ("call", "types", "message"),
    [
        (lambda x, y: x + y, [kind(2), kind(3)], r"add\(float32\[2\], float32\[3\]\).*broadcast"),
        (lambda x, y: x * y, [kind(2), kind(2, dtype=I32)], r"mul\(.*dtypes differ"),
        (lambda x, y: x + y, [kind(2, dtype=DType.bool)] * 2, r"add\(bool.*not bool"),
        (lambda x: x / x, [kind(2, dtype=I32)], r"div\(int32.*floating-point"),
        (ops.exp, [kind(2, dtype=I32)], r"exp\(int32\[2\]\).*floating-point"),
        (lambda x: x * 0.5, [kind(2, dtype=I32)], r"mul: 0.5 beside int32; cast"),
        (lambda x: x + 300, [kind(2, dtype=DType.uint8)], r"add: 300 beside uint8; cast"),
        (lambda x: x.reshape([5]), [kind(2, 3)], r"reshape\(float32\[2, 3\]\).*number"),
        (lambda x: x.reshape(["m", 3]), [kind("n", 3)], r"reshape\(.*different numbers"),
        (lambda x: x.permute([0, 3]), [kind(2, 3)], r"permute\(.*\[0, 3\]"),
        (lambda x: x.permute([0, 0]), [kind(2, 3)], r"permute\(.*once"),
        (lambda x: x.permute([0, -3]), [kind(2, 3)], r"permute\("),
        (lambda x: x.T, [kind(3)], r"transpose\(float32\[3\]\).*no dimensions"),
        (lambda x: x[-2:5], [kind("n")], r"slice\(float32\[n\]\): .*order of its ends"),
        (lambda x, y: x @ y, [kind(2, 3), kind(2, 3)], r"matmul\(.*inner dimensions 3 and 2"),
        (lambda x, y: x @ y, [kind(), kind(3, 2)], r"matmul\(.*two dimensions"),
        (lambda x, y: x @ y, [kind(2, 0), kind(0, 2)], r"matmul\(.*is 0"),
        (ops.linear, [kind(2, 3), kind(5, 4)], r"linear\(.*widths differ"),
        (ops.linear, [kind(2, 3, dtype=I32), kind(5, 3)], r"linear\(.*floating-point"),
        (ops.linear, [kind(2, 3), kind(5, 3, dtype=I32)], r"linear\(.*weight in int32"),
        (ops.linear, [kind(2, 3), kind("n", 3)], r"linear\(.*two known dimensions"),
        (ops.linear, [kind(2, 0), kind(5, 0)], r"linear\(.*empty"),
        (ops.linear, [kind(2, 3), kind(5, 3), kind(3)], r"linear\(.*bias has shape \[5\]"),
        (ops.embedding, [kind(2), kind(5, 3)], r"embedding\(.*whole numbers"),
        (lambda x, w: ops.rms_norm(x, w, 1e-6), [kind(2, 3), kind(2)], r"rms_norm\(.*shape \[3\]"),
        (lambda x, w: ops.rms_norm(x, w, 1e-6), [kind(), kind()], r"rms_norm\(.*width"),
        (lambda x, w: ops.rms_norm(x, w, 1e-6), [kind("n"), kind("n")], r"rms_norm\(.*known"),
        (lambda x, w: ops.rms_norm(x, w, -1.0), [kind(2), kind(2)], r"rms_norm\(.*eps"),
    ],
)
def test_operands_that_do_not_fit(
    call: Callable[..., Tensor], types: list[TensorType], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Graph("g", call, types)


HEADS, TABLE, AT = kind("b", "s", 2, 4), kind(8, 2), kind(1, dtype=I32)
KEYS, VALUES = kind("b", 2, 4, 8), kind("b", 2, 8, 4)
HALF = kind("b", "s", 2, 4, dtype=DType.float16)
HALF_VALUES = kind("b", 2, 8, 4, dtype=DType.float16)
ROWS = {"transposed": False}


def attention(*operands: Tensor, **options: Any) -> Tensor:
    return ops.attention(*operands, scale=1.0, **options)


@pytest.mark.parametrize(
    ("call", "types", "message"),
    [
        (ops.rope, [kind("b", "s", 4), TABLE, TABLE, AT], r"rope\(.*\[batch, seq, heads"),
        (ops.rope, [kind("b", "s", 2, 3), TABLE, TABLE, AT], r"half the rotated .* of 3 at most"),
        (ops.rope, [kind("b", "s", 2, "d"), TABLE, TABLE, AT], r"known"),
        (ops.rope, [HEADS, kind(8, 3), TABLE, AT], r"tables are \[context, half .* of 4 at most"),
        (ops.rope, [HEADS, TABLE, kind(7, 2), AT], r"tables are of one shape"),
        (ops.rope, [HEADS, TABLE, TABLE, kind(1)], r"position is int32\[1\]"),
        (ops.rope, [HALF, TABLE, TABLE, AT], r"float32"),
        (ops.cache_write_key, [VALUES, HEADS, AT], r"cache_write_key\(.*cache is"),
        (ops.cache_write_value, [KEYS, HEADS, AT], r"cache_write_value\(.*cache is"),
        (ops.cache_write_value, [kind("b", 2), HEADS, AT], r"cache_write_value\(.*cache is"),
        (ops.cache_write_key, [KEYS, HALF, AT], r"float32"),
        (attention, [HEADS, VALUES, VALUES, AT], r"attention\(.*keys are"),
        (attention, [HEADS, KEYS, KEYS, AT], r"attention\(.*values are"),
        (attention, [kind("b", "s", 3, 4), KEYS, VALUES, AT], r"multiple"),
        (attention, [HALF, KEYS, VALUES, AT], r"float32"),
        (attention, [HEADS, KEYS, HALF_VALUES, AT], r"keys and values are of one type"),
        (attention, [HEADS, kind("b", 2, 4, 8, dtype=I32), VALUES, AT], r"bfloat16, not int32"),
        (lambda *o: attention(*o, **ROWS), [HEADS, KEYS, VALUES, AT], r"\[batch, kv, context, dim"),
        (lambda *o: ops.cache_write_key(*o, **ROWS), [KEYS, HEADS, AT], r"context, dim\]"),
        (ops.cache_write_key, [kind("b", 2, 4, 8, dtype=I32), HEADS, AT], r"bfloat16, not int32"),
        (lambda *o: attention(*o, window=0), [HEADS, KEYS, VALUES, AT], r"window"),
        (lambda *o: attention(*o, softcap=0.0), [HEADS, KEYS, VALUES, AT], r"soft cap is above 0"),
    ],
)
def test_operands_of_attention_that_do_not_fit(
    call: Callable[..., Tensor], types: list[TensorType], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Graph("g", call, types)


def test_python_numbers_are_ids_and_positions_where_these_are_asked_for() -> None:
    def call(x: Tensor, table: Tensor) -> list[Tensor]:
        return [ops.rope(x, table, table, [3]), ops.embedding([0, 1], table)]

    graph = Graph("g", call, [HEADS, TABLE])
    assert graph.outputs[1].type == kind(2, 2)
    assert [constant.dtype for constant, _ in graph.constants] == [I32, I64]


def test_gelu_names_its_approximations() -> None:
    with pytest.raises(
        ValueError, match="gelu: approximate is one of none, quick, tanh, not 'erf'"
    ):
        ops.gelu(Tensor([1.0]), approximate="erf")


F8 = TensorType(DType.float8_e5m2, [2, 2])
COMPUTED: list[Callable[..., Any]] = [
    *(getattr(ops, name) for name in ("exp", "abs", "relu", "is_nan", "sum", "mean", "argmax")),
    *(getattr(ops, name) for name in ("cumsum", "softmax", "argsort", "variance")),
    lambda x: x + x,
    lambda x: x == x,
    lambda x: x @ x,
    lambda x: ops.maximum(x, x),
    lambda x: ops.top_k(x, 1)[0],
    lambda x: ops.linear(x, x),
    lambda x: ops.embedding([0], x),
    lambda x: ops.rms_norm(x, x[0], 1e-6),
    lambda x: ops.conv1d(x.reshape([1, 2, 2]), x.reshape([2, 2, 1])),
]


@pytest.mark.parametrize("call", COMPUTED)
def test_nothing_is_computed_with_floats_of_8_bits(call: Callable[..., Any]) -> None:
    """Refuse arithmetic: they are carried as integers, with which it would be wrong."""
    with pytest.raises(ValueError, match=r"^\w+\(.*float8_e5m2"):
        Graph("g", lambda x: [call(x)], [F8])


SEEN, LOGITS, IDS = kind("b", 9, dtype=DType.int8), kind("b", 9), kind("b", "n", dtype=I64)
DRAWS, SETTINGS, WHERE = kind(16), kind(5), kind(1, dtype=I32)


def test_the_types_of_drawn_tokens() -> None:
    def call(*operands: Tensor) -> Tensor:
        return ops.sample(*operands)[0]

    result = traced(call, SEEN, LOGITS, IDS, DRAWS, WHERE, SETTINGS)
    assert result == TensorType(I64, ["b", 1])


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ([LOGITS, LOGITS, IDS, DRAWS, WHERE, SETTINGS], "seen is int8, not float32"),
        ([SEEN, kind("b", 8), IDS, DRAWS, WHERE, SETTINGS], r"seen are \[batch, vocab\]"),
        ([SEEN, kind("b", 9, dtype=DType.float16), IDS, DRAWS, WHERE, SETTINGS], "float32"),
        ([SEEN, LOGITS, kind("b", "n", dtype=I32), DRAWS, WHERE, SETTINGS], "int64, not int32"),
        ([SEEN, LOGITS, kind("c", "n", dtype=I64), DRAWS, WHERE, SETTINGS], r"\[batch, seq\]"),
        ([SEEN, LOGITS, IDS, kind(2, 3), WHERE, SETTINGS], r"draws are \[context\]"),
        ([SEEN, LOGITS, IDS, DRAWS, kind(1, dtype=I64), SETTINGS], r"position is int32\[1\]"),
        ([SEEN, LOGITS, IDS, DRAWS, WHERE, kind(4)], r"settings are \[5\]"),
    ],
)
def test_what_tokens_are_not_drawn_from(types: list[TensorType], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Graph("g", lambda *operands: ops.sample(*operands)[0], types)
