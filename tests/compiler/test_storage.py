"""Choice of packed weights, and their stored form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from maxtool.compiler.cpu_target import cpu_target
from maxtool.compiler.lowering_plan import LoweringPlan
from maxtool.compiler.storage import WeightStorage
from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, Weight, executor, ops
from tests.compiler.unpacking import unpacked

TARGET = cpu_target()
ROWS = TensorType(DType.float32, ["n", 8])
IDS = TensorType(DType.int64, ["n"])
weight = Weight("w", DType.float32, [8, 8])


def inner(x: Tensor) -> Tensor:
    return ops.linear(x, weight)


CALLEE = Graph("inner", inner, [ROWS])
# The rows of a block of the weight: those of a register tile, one by one, or no block.
TILE, ROW, PLAIN = TARGET.tile.nr, 1, None
USES: list[tuple[str, Callable[..., Any], int | None]] = [
    ("linear", lambda x, _: ops.linear(x, weight), TILE),
    ("embedding", lambda _, ids: ops.embedding(ids, weight), ROW),
    ("both", lambda x, ids: ops.linear(x, weight) + ops.embedding(ids, weight), TILE),
    ("subgraph", lambda x, _: ops.call(CALLEE, x), TILE),
    ("plain", lambda x, _: x @ weight, PLAIN),
    ("linear and plain", lambda x, _: ops.linear(x, weight) @ weight, PLAIN),
    ("subgraph and plain", lambda x, _: ops.call(CALLEE, x)[0] @ weight, PLAIN),
    ("output", lambda x, _: [ops.linear(x, weight), weight], PLAIN),
    ("linear's input", lambda x, _: [ops.linear(x, weight), ops.linear(weight, weight)], PLAIN),
    ("embedding and plain", lambda x, ids: x @ weight + ops.embedding(ids, weight), PLAIN),
]


@pytest.mark.parametrize(("call", "block"), [use[1:] for use in USES], ids=[u[0] for u in USES])
def test_a_weight_is_packed_when_every_use_reads_it_packed(
    call: Callable[..., Any], block: int | None
) -> None:
    graph = Graph("main", call, [ROWS, IDS])
    assert LoweringPlan([graph], TARGET).storage["w"].block == block


def test_a_use_in_another_graph_counts() -> None:
    graphs = [Graph(str(use), USES[use][1], [ROWS, IDS]) for use in (0, 4)]
    assert LoweringPlan(graphs, TARGET).storage["w"].block is None


def test_weights_are_sorted_by_name() -> None:
    named = [Weight(name, DType.float32, [8]) for name in ("b", "a", "c")]
    graph = Graph("main", lambda x: x + named[0] + named[1] + named[2], [ROWS])
    assert list(LoweringPlan([graph], TARGET).storage) == ["a", "b", "c"]


def first_uses(count: int) -> Callable[..., list[Tensor]]:
    def call(x: Tensor, ids: Tensor) -> list[Tensor]:
        results = [use(x, ids) for _, use, _ in USES[:count]]
        return [
            part
            for result in results
            for part in (result if isinstance(result, list) else [result])
        ]

    return call


@pytest.mark.long
def test_however_a_weight_is_stored_the_numbers_are_those_of_numpy() -> None:
    """Agree with NumPy in one graph, where packed and plain readers of one weight meet."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 8), np.float32), rng.standard_normal((8, 8), np.float32)
    ids = np.array([7, 0, 3])
    linear = x @ w.T
    wanted = [linear, w[ids], linear + w[ids], linear, x @ w, linear @ w, linear @ w, w]

    for count in (4, 7):
        graph = Graph("main", first_uses(count), [ROWS, IDS])
        got = executor.find_executor().compile(graph, {"w": w})(Tensor(x), Tensor(ids))
        for value, expected in zip(got, wanted, strict=False):
            np.testing.assert_allclose(value.to_numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [DType.float32, DType.float16, DType.bfloat16])
def test_what_is_stored(dtype: DType) -> None:
    values = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    cast = values.astype(dtype.to_numpy())
    bits = f"u{dtype.size_in_bytes}"
    plain, packed = (WeightStorage("w", dtype, (5, 3), block) for block in (None, 4))
    for place in (plain, packed):
        stored = place.store(values)
        assert (str(stored.dtype), stored.shape) == (place.stored_dtype, place.stored_shape)
        assert stored.nbytes == place.nbytes
    np.testing.assert_array_equal(plain.store(values).view(bits), cast.view(bits))
    np.testing.assert_array_equal(unpacked(packed.store(values), 5).view(bits), cast.view(bits))


@pytest.mark.parametrize("dtype", [DType.float32, DType.bfloat16])
def test_what_is_stored_of_experts(dtype: DType) -> None:
    """Each one's matrix packed, one after the other."""
    values = np.random.default_rng(1).standard_normal((3, 5, 2)).astype(dtype.to_numpy())
    place = WeightStorage("w", dtype, (3, 5, 2), 4)
    stored = place.store(values)
    assert (stored.shape, stored.nbytes) == ((3, 2, 2, 4), place.nbytes)
    for one, expected in zip(stored, values, strict=True):
        actual = unpacked(one, 5).view(dtype.to_numpy())
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5, 8), (2, 40, 7)])
def test_pairs_of_terms_are_stored_and_restored(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(2).standard_normal(shape).astype(ml_dtypes.bfloat16)
    place = WeightStorage("w", DType.bfloat16, shape, 4, terms=2)
    stored = place.store(values)
    *experts, n, k = shape
    assert stored.shape == place.stored_shape == (*experts, -(-n // 4), -(-k // 2), 4, 2)
    assert stored.nbytes == place.nbytes
    np.testing.assert_array_equal(place.restore(stored), values)


def test_weights_of_experts_are_packed() -> None:
    experts = Weight("w", DType.float32, [3, 8, 8])
    chosen = TensorType(DType.int64, ["n", 2])
    graph = Graph("main", lambda x, at: ops.expert_linear(x, experts, at), [ROWS, chosen])
    assert LoweringPlan([graph], TARGET).storage["w"].block == TARGET.tile.nr


def test_a_scalar_is_stored_as_one() -> None:
    place = WeightStorage("s", DType.bfloat16, (), None)
    stored = place.store(np.array(1.5, ml_dtypes.bfloat16))
    assert (stored.shape, place.nbytes) == ((), 2)
