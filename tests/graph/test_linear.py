"""``linear`` and ``embedding`` of every type they take, beside NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, Weight, executor, ops
from tests.effort import thinned

Array = np.ndarray[Any, Any]

BF16, F16, F32, F64, I32 = (
    DType(name) for name in ("bfloat16", "float16", "float32", "float64", "int32")
)
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-5, "float64": 1e-12}
rng = np.random.default_rng(0)


def normal(dtype: DType, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(dtype.to_numpy())


@pytest.mark.parametrize(
    ("dtype", "weight", "bias"),
    thinned(
        [(F16, F16, F16), (BF16, BF16, F32), (F32, F16, BF16), (F64, F64, F64), (F64, F32, F16)],
        (BF16, BF16, F32),
        (F32, F16, BF16),
        (F64, F32, F16),
    ),
)
@pytest.mark.parametrize("packed", [False, True])
def test_linear(dtype: DType, weight: DType, bias: DType, packed: bool) -> None:
    """Packed weights are those of compiled modules; symbolic rows, none too, and rank 1."""
    w, b = normal(weight, 9, 5), normal(bias, 9)
    named = Weight("w", weight, [9, 5]) if packed else Tensor(w)

    def call(x: Tensor, row: Tensor) -> list[Tensor]:
        return [ops.linear(x, named, Tensor(b)), ops.linear(row, named)]

    kinds = [TensorType(dtype, ["n", 2, 5]), TensorType(dtype, [5])]
    run = executor.find_executor().compile(Graph("g", call, kinds), {"w": w} if packed else {})
    wide = w.astype(np.float64)
    for n in (3, 0):
        x, row = normal(dtype, n, 2, 5), normal(dtype, 5)
        first, second = run(Tensor(x), Tensor(row))
        assert (first.dtype, first.shape, second.shape) == (dtype, [n, 2, 9], [9])
        for got, exact in (
            (first, x.astype(np.float64) @ wide.T + b.astype(np.float64)),
            (second, row.astype(np.float64) @ wide.T),
        ):
            scale = TOLERANCE[dtype.value]
            np.testing.assert_allclose(
                got.to_numpy().astype(np.float64), exact, rtol=scale, atol=5 * scale
            )


def test_linear_at_once() -> None:
    x, w = normal(F16, 2, 5), normal(F16, 3, 5)
    got = ops.linear(x, Tensor(w))
    assert got.dtype is F16
    np.testing.assert_allclose(got.to_numpy(), x @ w.T, rtol=5e-3, atol=5e-3)
    assert ops.linear(np.zeros((0, 5), np.float32), Tensor(w)).shape == [0, 3]


INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def test_rows_by_ids_of_every_integer_type() -> None:
    """Traced, packed and not, an id outside reads the nearest row; a table of 300 rows exceeds
    what 8 bits count."""
    table = normal(F32, 300, 4)
    tables = {"packed": Weight("w", F32, [300, 4]), "plain": Tensor(table)}
    for names in (INTEGERS[:4], INTEGERS[4:]):
        kinds = [TensorType(DType(name), ["n", 2]) for name in names]
        for form, weight in tables.items():
            call = partial(rows_of, weight)
            graph = Graph("g", call, kinds)
            run = executor.find_executor().compile(graph, {"w": table} if form == "packed" else {})
            for n in (3, 0):
                ids = [_ids(name, n) for name in names]
                for got, one in zip(run(*map(Tensor, ids)), ids, strict=True):
                    nearest = np.clip(one.astype(object), 0, 299).astype(np.int64)
                    np.testing.assert_array_equal(got.to_numpy(), table[nearest])


def rows_of(weight: Tensor, *ids: Tensor) -> list[Tensor]:
    return [ops.embedding(id_, weight) for id_ in ids]


def _ids(name: str, n: int) -> Array:
    """Return ids within the table, and the least and largest of the type."""
    limits = np.iinfo(name)
    ids = rng.integers(0, 100, (n, 2)).astype(name)
    if n:
        ids[0] = limits.min, limits.max
    return ids


@pytest.mark.parametrize(
    ("dtype", "row"), [(F32, (4,)), (F16, ()), (BF16, (2, 3)), (F64, (2, 3)), (F32, (2, 3))]
)
def test_rows_of_any_rank(dtype: DType, row: tuple[int, ...]) -> None:
    table = normal(dtype, 7, *row)
    weight = Weight("w", dtype, table.shape)
    graph = Graph("g", lambda ids: ops.embedding(ids, weight), [TensorType(I32, ["n", 2])])
    ids = np.array([[0, 6], [3, 3]], np.int32)
    traced = executor.find_executor().compile(graph, {"w": table})(Tensor(ids))[0]
    eager = ops.embedding(ids.astype(np.uint64), Tensor(table))
    for got in (traced, eager):
        assert got.dtype is (F64 if dtype is F64 else F32)
        np.testing.assert_array_equal(got.to_numpy(), table[ids].astype(got.to_numpy().dtype))
    assert ops.embedding(np.zeros((0, 2), np.int64), Tensor(table)).shape == [0, 2, *row]


@pytest.mark.parametrize(
    "ids", [[[0, 7]], [-1], np.array(2**63, np.uint64), np.array([-128], "i1")]
)
def test_ids_outside_are_refused_when_they_are_known(ids: Any) -> None:
    table = Tensor(normal(F32, 7, 2))
    with pytest.raises(ValueError, match=r"embedding\(.*float32\[7, 2\]\): id -?\d+ is not one of"):
        ops.embedding(ids, table)
    with pytest.raises(ValueError, match=r"is not one of 0 to 6"):
        Graph("g", lambda w: ops.embedding(ids, w), [table.type])


def kind(*shape: int | str, dtype: DType = F32) -> TensorType:
    return TensorType(dtype, shape)


@pytest.mark.parametrize(
    ("call", "types", "message"),
    [
        (ops.linear, [kind(2, 3, dtype=I32), kind(5, 3)], r"linear\(int32.*floating-point"),
        (ops.linear, [kind(2, 3), kind(5, 3, dtype=F64)], r"linear\(.*float64 beside float32"),
        (ops.linear, [kind(2, 3), kind(5, 3), kind(5, dtype=I32)], r"linear\(.*int32 beside"),
        (ops.embedding, [kind(2), kind(5, 3)], r"embedding\(float32.*whole numbers"),
        (ops.embedding, [kind(2, dtype=I32), kind()], r"embedding\(.*known dimensions"),
        (ops.embedding, [kind(2, dtype=I32), kind("n", 2)], r"embedding\(.*known dimensions"),
        (ops.embedding, [kind(2, dtype=I32), kind(0, 2)], r"embedding\(.*empty"),
        (
            ops.embedding,
            [kind(2, dtype=I32), kind(3, dtype=I32)],
            r"no kernel for a weight in int32",
        ),
    ],
)
def test_operands_that_do_not_fit(
    call: Callable[..., Tensor], types: list[TensorType], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Graph("g", call, types)
