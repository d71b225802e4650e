"""Every operation, eagerly and compiled, against NumPy and ml_dtypes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import erf
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maxtool.compiler.fusion.attention_fusions import UNMOVED
from maxtool.compiler.fusion.convolution_fusions import SPECIAL
from maxtool.compiler.fusion.epilogue_fusions import FUSED
from maxtool.compiler.lowering.rules import RULES
from maxtool.dtype import DType
from maxtool.errors import MisshapenWeight, MissingDevice, MissingWeight
from maxtool.graph import DeviceRef, Graph, Tensor, TensorType, Weight, executor, ops
from maxtool.graph.ops import OPS
from tests.compiler.execution import F32, FLOATS, Array, Run, compiled, sample
from tests.effort import thinned


def sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def gelu(x: Array) -> Array:
    return x * (1 + np.vectorize(erf, otypes=[np.float64])(x / np.sqrt(2))) / 2


def gelu_tanh(x: Array) -> Array:
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


UNARY: dict[str, Callable[[Array], Array]] = {
    "abs": np.abs,
    "exp": np.exp,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "log": np.log,
    "negative": np.negative,
    "relu": lambda x: np.maximum(x, 0),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mul": np.multiply,
    "sub": np.subtract,
}


def apply(name: str) -> Callable[..., Tensor]:
    return lambda *operands: ops.apply(name, *operands)[0]


def test_every_operation_has_a_rule() -> None:
    assert set(RULES) == {*OPS, FUSED, UNMOVED, *SPECIAL}


FEW = (DType.float32, DType.bfloat16)


@pytest.fixture(scope="module", params=thinned(FLOATS, *FEW), ids=lambda dtype: dtype.value)
def all_unary(request: pytest.FixtureRequest) -> tuple[DType, Run]:
    kind = TensorType(request.param, ["n", 3])
    return request.param, compiled(lambda x: [apply(name)(x) for name in UNARY], kind)


TOLERANCE = {DType.float16: 1e-3, DType.bfloat16: 8e-3, F32: 2e-6, DType.float64: 1e-13}


@given(st.lists(st.floats(-80, 80, width=16), max_size=24))
@settings(max_examples=30, deadline=None)
def test_unary_operations(all_unary: tuple[DType, Run], values: list[float]) -> None:
    dtype, run = all_unary
    x = np.array(values[: len(values) // 3 * 3]).reshape(-1, 3).astype(dtype.to_numpy())
    with np.errstate(all="ignore"):
        exact = x.astype(np.float64)
        expected = [function(exact) for function in UNARY.values()]
        expected = [one.astype(dtype.to_numpy()).astype(np.float64) for one in expected]
    for name, got, wanted in zip(UNARY, run(x), expected, strict=True):
        np.testing.assert_allclose(
            got.astype(np.float64), wanted, rtol=TOLERANCE[dtype], atol=1e-7, err_msg=name
        )


@pytest.fixture(scope="module", params=thinned(FLOATS[:3], *FEW), ids=lambda dtype: dtype.value)
def all_binary(request: pytest.FixtureRequest) -> tuple[DType, Run]:
    """Operands of one shape, which float32 computes in chains, and of broadcast shapes."""
    kinds = [TensorType(request.param, shape) for shape in (["n", 3], ["n", 1], ["n", 3])]
    return request.param, compiled(
        lambda x, y, z: [apply(name)(x, other) for name in BINARY for other in (y, z)], *kinds
    )


special = st.sampled_from([0.0, -0.0, 1.0, -2.5, float("inf"), float("-inf"), float("nan")])


@given(st.lists(special | st.floats(-1000, 1000, width=16), min_size=7, max_size=35))
@settings(max_examples=40, deadline=None)
def test_binary_operations(all_binary: tuple[DType, Run], values: list[float]) -> None:
    """Compute as NumPy and ml_dtypes do: rounded once, NaN where either is."""
    dtype, run = all_binary
    n = len(values) // 7
    flat = np.array(values[: 7 * n]).astype(dtype.to_numpy())
    x, y, z = flat[: 3 * n].reshape(n, 3), flat[3 * n : 4 * n, None], flat[4 * n :].reshape(n, 3)
    with np.errstate(all="ignore"):
        expected = [function(x, other) for function in BINARY.values() for other in (y, z)]
    for got, wanted in zip(run(x, y, z), expected, strict=True):
        np.testing.assert_array_equal(got.astype(np.float64), wanted.astype(np.float64))


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 1, 3)])
def test_eager_operations_of_any_rank(shape: tuple[int, ...]) -> None:
    x = sample(*shape)
    np.testing.assert_allclose((Tensor(x) * 2.0).to_numpy(), x * 2)
    np.testing.assert_allclose(ops.tanh(Tensor(x)).to_numpy(), np.tanh(x), rtol=1e-6)


@given(st.data())
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_eager_broadcasting(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 3), max_size=3))
    other = [data.draw(st.sampled_from([size, 1])) for size in shape]
    other = other[data.draw(st.integers(0, len(shape))) :]
    x, y = sample(*shape), sample(*other)
    np.testing.assert_array_equal((Tensor(x) - Tensor(y)).to_numpy(), x - y)
    np.testing.assert_array_equal((Tensor(y) - Tensor(x)).to_numpy(), y - x)


@pytest.mark.parametrize("dtype", [DType.int8, DType.int64, DType.uint16])
def test_integer_operations(dtype: DType) -> None:
    kind = TensorType(dtype, ["n"])
    x, y = np.array([[0, 3, 7], [5, 3, 2]], dtype.to_numpy())
    names = [name for name in BINARY if name != "div"]
    run = compiled(lambda x, y: [apply(name)(x, y) for name in names] + [x + 1], kind, kind)
    for got, name in zip(run(y, x), names, strict=False):
        np.testing.assert_array_equal(got, BINARY[name](y, x), err_msg=name)
    if dtype is not DType.uint16:
        np.testing.assert_array_equal(abs(-Tensor(x)).to_numpy(), x)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (2, 0, 3)])
def test_tensors_without_elements(shape: tuple[int, ...]) -> None:
    empty = Tensor(np.zeros(shape, np.float32))
    assert ops.exp(empty + 1.0).shape == shape
    kind = TensorType(F32, [f"d{axis}" for axis in range(len(shape))])
    assert compiled(lambda x: ops.exp(x) + x, kind)(empty.to_numpy())[0].shape == shape


@pytest.mark.parametrize("dtype", [*FLOATS[:2], DType.int32], ids=lambda dtype: dtype.value)
def test_matmul_sums_narrow_floats_in_float32(dtype: DType) -> None:
    x, y = sample(2, 1, 3, 40, dtype=dtype), sample(5, 40, 2, dtype=dtype)
    kinds = [TensorType(dtype, shape) for shape in ((2, 1, 3, "k"), (5, "k", 2))]
    got = compiled(lambda x, y: x @ y, *kinds)(x, y)[0]
    wide = np.float64 if dtype is DType.float64 else np.float32
    wanted = (x.astype(wide) @ y.astype(wide)).astype(dtype.to_numpy())
    np.testing.assert_allclose(
        got.astype(wide), wanted.astype(wide), rtol=2 * TOLERANCE.get(dtype, 0), atol=1e-5
    )


def test_matmul_of_matrices_and_of_a_matrix_with_batches() -> None:
    x, y, z = sample(3, 4), sample(4, 2), sample(2, 4, 2)
    np.testing.assert_allclose((Tensor(x) @ y).to_numpy(), x @ y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose((Tensor(x) @ z).to_numpy(), x @ z, rtol=1e-5, atol=1e-6)


LAYOUTS: list[Callable[[Any], Any]] = [
    lambda x: x[0],
    lambda x: x[:, -1],
    lambda x: x[:, 1, 2:5],
    lambda x: x[..., -1, :] if isinstance(x, np.ndarray) else x[:, -1, :],
    lambda x: x[:, :, 3:3],
    lambda x: x[-1, -2, -6],
    lambda x: x[:, :, -9:99],
]


@pytest.mark.parametrize("dtype", [DType.bfloat16, DType.bool])
def test_slices_of_symbolic_and_known_dimensions(dtype: DType) -> None:
    x = np.arange(4 * 3 * 6).reshape(4, 3, 6).astype(dtype.to_numpy())
    kind = TensorType(dtype, ["batch", "seq", 6])
    run = compiled(lambda x: [layout(x) for layout in LAYOUTS], kind)
    for got, layout in zip(run(x), LAYOUTS, strict=True):
        np.testing.assert_array_equal(got, layout(x))


def test_permutes_and_reshapes_of_symbolic_and_known_dimensions() -> None:
    x = sample(2, 5, 6)
    kind = TensorType(F32, ["batch", "seq", 6])
    run = compiled(
        lambda x: [
            x.permute([2, 0, 1]),
            x.T,
            x.reshape(["batch", "seq", 2, 3]).permute([0, 2, 1, 3]),
            (x * 2.0).reshape([6, "seq", "batch"]),
            x.permute([1, 0, 2]).reshape(["batch", "seq", 6]) + x,
        ],
        kind,
    )
    wanted: Sequence[Array] = [
        x.transpose(2, 0, 1),
        x.transpose(0, 2, 1),
        x.reshape(2, 5, 2, 3).transpose(0, 2, 1, 3),
        (x * 2).reshape(6, 5, 2),
        x.transpose(1, 0, 2).reshape(2, 5, 6) + x,
    ]
    for got, expected in zip(run(x), wanted, strict=True):
        np.testing.assert_array_equal(got, expected)
    eager = Tensor(x).reshape([10, 6]).permute([1, 0])
    np.testing.assert_array_equal(eager.to_numpy(), x.reshape(10, 6).T)
    assert Tensor([2.5]).reshape([]).to_numpy() == np.float32(2.5)


@pytest.mark.parametrize("dtype", [F32, DType.float16, DType.bfloat16], ids=lambda d: d.value)
def test_linear_and_embedding_with_weights_of_every_type(dtype: DType) -> None:
    """Packed when given as weights, plain when given as inputs; either way as float32 computes."""
    weight, bias = sample(37, 20, dtype=dtype), sample(37)
    x = sample(2, 3, 20, dtype=DType.bfloat16).astype(np.float32)  # as pairs of bfloat16 round it
    ids = np.array([[0, 36, -5], [99, 1, 20]])
    named = Weight("weight", dtype, weight.shape)
    table = Weight("table", dtype, weight.shape)

    def call(x: Tensor, ids: Tensor, plain: Tensor, bias: Tensor) -> list[Tensor]:
        return [
            ops.linear(x, named, bias),
            ops.linear(x, plain, bias),
            ops.embedding(ids, table),
            ops.embedding(ids, plain),
        ]

    types = [
        TensorType(F32, ["batch", "seq", 20]),
        TensorType(DType.int64, ["batch", "seq"]),
        TensorType(dtype, weight.shape),
        TensorType(F32, bias.shape),
    ]
    run = compiled(call, *types, weights={"weight": weight, "table": weight})
    got = run(x, ids, weight, bias)
    wide = weight.astype(np.float32)
    for one in got[:2]:
        np.testing.assert_allclose(one, x @ wide.T + bias, rtol=1e-4, atol=1e-5)
    for one in got[2:]:  # an id outside reads the nearest row
        np.testing.assert_array_equal(one, wide[ids.clip(0, 36)])


def test_rms_norm_and_rope_and_attention_eagerly() -> None:
    x, weight = sample(2, 3, 8), sample(8)
    scale = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    got = ops.rms_norm(x, Tensor(weight), 1e-5).to_numpy()
    np.testing.assert_allclose(got, x * scale * weight, rtol=1e-5, atol=1e-6)

    x, angle = sample(1, 3, 2, 8), sample(10, 4)
    cos, sin = np.cos(angle)[4:7, None], np.sin(angle)[4:7, None]
    low, high = x[..., :4], x[..., 4:]
    wanted = np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)
    turned = ops.rope(x, Tensor(np.cos(angle)), Tensor(np.sin(angle)), [4]).to_numpy()
    np.testing.assert_allclose(turned, wanted, rtol=1e-5, atol=1e-6)

    query, keys, values = sample(1, 2, 4, 8), sample(1, 2, 8, 6), sample(1, 2, 6, 8)
    for window in (None, 2):
        mixed = ops.attention(
            query, Tensor(keys), Tensor(values), [3], scale=0.5, window=window
        ).to_numpy()
        np.testing.assert_allclose(
            mixed, attended(query, keys, values, 3, 0.5, window), rtol=1e-5, atol=1e-6
        )


def attended(
    query: Array, keys: Array, values: Array, position: int, scale: float, window: int | None
) -> Array:
    groups = query.shape[2] // keys.shape[1]
    k, v = keys.repeat(groups, 1), values.repeat(groups, 1)
    scores = query.transpose(0, 2, 1, 3) @ k * scale
    row = position + np.arange(query.shape[1])[:, None]
    column = np.arange(keys.shape[3])
    seen = (column <= row) & (column > row - (window or 10**6))
    weights = np.where(seen, np.exp(scores), 0)
    mixed = weights / weights.sum(-1, keepdims=True) @ v
    return np.asarray(mixed.transpose(0, 2, 1, 3))


def test_weights_are_checked_all_at_once_and_copied() -> None:
    left, right = Weight("one", F32, [3]), Weight("two", F32, [])
    graph = Graph("main", lambda x: x * left + right, [TensorType(F32, ["n", 3])])
    compile_ = executor.find_executor().compile
    with pytest.raises(MissingWeight) as missing:
        compile_(graph, {})
    assert missing.value.problems == ("one", "two")
    with pytest.raises(MisshapenWeight) as wrong:
        compile_(graph, {"one": np.zeros(4, np.float32), "two": np.array(1.0)})
    assert len(wrong.value.problems) == 2
    values = {"one": np.ones(3, np.float32), "two": np.array(1, np.float32)}
    run = compile_(graph, values)
    values["one"][...] = 7
    np.testing.assert_array_equal(run(Tensor([[1.0, 2.0, 3.0]]))[0].to_numpy(), [[2, 3, 4]])


def test_a_device_that_is_not_here_is_refused() -> None:
    kind = TensorType(F32, [2], DeviceRef.GPU(97))
    with pytest.raises(MissingDevice, match="no gpu:97 here"):
        compiled(lambda x: x + 1.0, kind)


def test_threads_share_an_operation() -> None:
    x = Tensor(sample(8, 8))
    alone = ops.matmul(x, x).to_numpy()
    same: list[bool] = []

    def work() -> None:
        same.extend(np.array_equal(ops.matmul(x, x).to_numpy(), alone) for _ in range(200))

    threads = [Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same == [True] * 1600


def test_a_sum_of_sizes_between_others() -> None:
    """TVM cannot simplify a division by such a sum, which fusing the loops would bring."""
    kinds = [TensorType(F32, ["batch", size, 4]) for size in (3, "seq")]
    run = compiled(lambda x, y: ops.pad(ops.concat([x, y], 1), [0, 0, 1, 2, 0, 0]), *kinds)
    for batch, seq in ((2, 5), (1, 1), (3, 400)):
        x, y = sample(batch, 3, 4), sample(batch, seq, 4)
        wanted = np.pad(np.concatenate([x, y], 1), [(0, 0), (1, 2), (0, 0)])
        np.testing.assert_array_equal(run(x, y)[0], wanted)
