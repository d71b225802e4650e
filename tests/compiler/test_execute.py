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

from maxtool.compiler.lowering.rules import RULES
from maxtool.dtype import DType
from maxtool.errors import MisshapenWeight, MissingDevice, MissingWeight
from maxtool.graph import BufferType, DeviceRef, Graph, Tensor, TensorType, Weight, executor, ops
from maxtool.graph.ops import OPS

Array = np.ndarray[Any, Any]
Run = Callable[..., list[Array]]

F32 = DType.float32
NUMBERS = [dtype for dtype in DType if "float8" not in dtype.value]
FLOATS = [dtype for dtype in NUMBERS if dtype.is_float()]
rng = np.random.default_rng(0)


def compiled(
    call: Callable[..., Any], *types: TensorType, weights: dict[str, Array] | None = None
) -> Run:
    graph = Graph("main", call, types)
    run = executor.find().compile(graph, weights or {})
    return lambda *arrays: [value.to_numpy() for value in run(*map(Tensor, arrays))]


def sample(*shape: int, dtype: DType = F32) -> Array:
    return rng.standard_normal(shape).astype(np.float32).astype(dtype.to_numpy())


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
    assert set(OPS) == set(RULES)


@pytest.fixture(scope="module", params=FLOATS, ids=lambda dtype: dtype.value)
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


@pytest.fixture(scope="module", params=FLOATS[:3], ids=lambda dtype: dtype.value)
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
    """As NumPy and ml_dtypes compute them: rounded once, NaN where either is."""
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


CASTS = [*FLOATS, DType.bool, DType.int64, DType.uint64]


@pytest.mark.parametrize("source", CASTS, ids=lambda dtype: dtype.value)
def test_casts_give_the_bits_of_numpy_and_ml_dtypes(source: DType) -> None:
    values = edge_values(source)
    run = compiled(lambda x: [x.cast(dtype) for dtype in NUMBERS], TensorType(source, ["n"]))
    for dtype, got in zip(NUMBERS, run(values), strict=True):
        with np.errstate(all="ignore"):
            wanted = values.astype(dtype.to_numpy())
            kept = in_range(values, dtype)
            if dtype.is_float():
                nan = np.isnan(wanted.astype(np.float64))
                np.testing.assert_array_equal(np.isnan(got.astype(np.float64)), nan)
                kept &= ~nan
        assert got.dtype == wanted.dtype
        bits = f"u{dtype.size_in_bytes}"
        np.testing.assert_array_equal(got[kept].view(bits), wanted[kept].view(bits), dtype.value)


def edge_values(dtype: DType) -> Array:
    """Random bits, and for floats what rounding may get wrong: ties, subnormals, limits."""
    if dtype is DType.bool:
        return np.array([True, False])
    raw = rng.integers(0, 256, 2000 * dtype.size_in_bytes, dtype=np.uint8)
    values = raw.view(dtype.to_numpy())
    if not dtype.is_float():
        return values
    limits = [0.0, -0.0, 65504, 65519, 65520, 6e-8, 2.98e-8, 3.4e38, np.inf, -np.inf, np.nan]
    ties = 1 + np.arange(64) / 512
    scaled = np.exp(rng.standard_normal(1000) * 8) * rng.choice([-1, 1], 1000)
    with np.errstate(over="ignore"):
        return np.concatenate([values, np.array([*limits, *ties, *scaled]).astype(values.dtype)])


def in_range(values: Array, dtype: DType) -> Array:
    """Where a cast is defined: a float outside an integer type's range may become anything."""
    if not (dtype.is_integral() and DType.from_numpy(values.dtype).is_float()):
        return np.ones(values.shape, bool)
    info = np.iinfo(dtype.to_numpy())
    whole = np.trunc(values.astype(np.float64))
    return np.isfinite(whole) & (whole >= float(info.min)) & (whole < float(info.max))


FLOAT8 = [dtype for dtype in DType if dtype not in NUMBERS]


@pytest.mark.parametrize(
    "source", [F32, DType.bfloat16, DType.int8, *FLOAT8], ids=lambda dtype: dtype.value
)
def test_casts_from_and_to_float8(source: DType) -> None:
    """To the bits of ml_dtypes: every number, and the ties between numbers."""
    values = edge_values(source)
    targets = [dtype for dtype in (*FLOAT8, F32, DType.bfloat16) if dtype is not source]
    run = compiled(lambda x: [x.cast(dtype) for dtype in targets], TensorType(source, ["n"]))
    wide = values.astype(np.float32)  # ml_dtypes has no casts among some of them
    for dtype, got in zip(targets, run(values), strict=True):
        with np.errstate(all="ignore"):
            wanted = wide.astype(dtype.to_numpy())
        number = ~np.isnan(wanted.astype(np.float32))
        np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), ~number)
        assert got[number].tobytes() == wanted[number].tobytes(), dtype.value


def test_negative_floats_wrap_around_where_there_is_no_sign() -> None:
    x = np.array([-1.5, -3.0, 2.5])
    for dtype in (DType.uint8, DType.uint32, DType.uint64):
        for source in (F32, DType.float16, DType.float64):
            got = Tensor(x.astype(source.to_numpy())).cast(dtype).to_numpy()
            wanted = np.array([-1, -3, 2]).astype(dtype.to_numpy())
            np.testing.assert_array_equal(got, wanted)


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
    weight, bias, x = sample(37, 20, dtype=dtype), sample(37), sample(2, 3, 20)
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


CACHE = (1, 2, 4, 8)
WRITTEN = (1, 3, 2, 4)
POSITION = TensorType(DType.int32, [1])


def written(cache: Array, x: Array, position: int) -> Array:
    result = cache.copy()
    result[..., position : position + x.shape[1]] = x.transpose(0, 2, 3, 1)
    return result


def test_an_eager_write_leaves_the_callers_array_alone() -> None:
    cache, x = sample(*CACHE), sample(*WRITTEN)
    before = cache.copy()
    result = ops.cache_write_key(Tensor(cache), Tensor(x), [4]).to_numpy()
    np.testing.assert_array_equal(result, written(before, x, 4))
    np.testing.assert_array_equal(cache, before)
    values = ops.cache_write_value(Tensor.zeros([1, 2, 8, 4]), Tensor(x), [4]).to_numpy()
    np.testing.assert_array_equal(values[:, :, 4:7], x.transpose(0, 2, 1, 3))


CACHED = [DType.float32, DType.float16, DType.bfloat16]


@pytest.mark.parametrize("dtype", CACHED)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("window", "softcap"), [(None, None), (3, 2.0)])
def test_attention_over_a_cache_of_any_form(
    dtype: DType, transposed: bool, window: int | None, softcap: float | None
) -> None:
    """Keys and values are rounded to the cache's type, and what they give is computed exactly."""
    x, query = sample(2, 3, 2, 4), sample(2, 3, 6, 4)
    before = sample(2, 2, 8, 4, dtype=dtype)
    keys = Tensor(np.ascontiguousarray(before.swapaxes(2, 3)) if transposed else before)
    keys = ops.cache_write_key(keys, Tensor(x), [4], transposed=transposed)
    values = ops.cache_write_value(Tensor(before), Tensor(x), [4])
    wanted = before.copy()
    wanted[:, :, 4:7] = x.swapaxes(1, 2).astype(before.dtype)
    np.testing.assert_array_equal(values.to_numpy(), wanted)
    found = keys.to_numpy().swapaxes(2, 3) if transposed else keys.to_numpy()
    np.testing.assert_array_equal(found, wanted)
    options = {"scale": 0.5, "window": window, "softcap": softcap, "transposed": transposed}
    got = ops.attention(Tensor(query), keys, values, [4], **options).to_numpy()
    held = np.repeat(wanted.astype(np.float64), 3, 1)
    scores = np.einsum("bihd,bhjd->bhij", query.astype(np.float64), held) * 0.5
    scores = scores if softcap is None else softcap * np.tanh(scores / softcap)
    at, key = 4 + np.arange(3)[:, None], np.arange(8)[None]
    scores[..., (key > at) | (key <= at - (window or 99))] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    exact = np.einsum("bhij,bhjd->bihd", weights / weights.sum(-1, keepdims=True), held)
    np.testing.assert_allclose(got, exact, rtol=2e-6, atol=2e-6)


def test_a_traced_write_to_a_tensor_leaves_the_callers_array_alone() -> None:
    kinds = [TensorType(F32, shape) for shape in (CACHE, WRITTEN)]
    cache, x = sample(*CACHE), sample(*WRITTEN)
    before = cache.copy()
    result = compiled(ops.cache_write_key, *kinds, POSITION)(cache, x, np.array([2], np.int32))
    np.testing.assert_array_equal(result[0], written(before, x, 2))
    np.testing.assert_array_equal(cache, before)


@pytest.mark.parametrize("misaligned", [False, True])
def test_a_buffer_is_written_in_place_wherever_it_lies(misaligned: bool) -> None:
    size = int(np.prod(CACHE))
    raw = np.zeros(size + 64, np.float32)
    start = (-raw.ctypes.data % 64) // 4 + misaligned
    cache, x = raw[start : start + size].reshape(CACHE), sample(*WRITTEN)
    before = cache.copy()

    def call(cache: Tensor, x: Tensor, position: Tensor) -> Tensor:
        ops.cache_write_key(cache, x, position)  # nothing reads it: it is written all the same
        return x + 1.0

    run = compiled(call, BufferType(F32, CACHE), TensorType(F32, WRITTEN), POSITION)
    run(cache, x, np.array([5], np.int32))
    np.testing.assert_array_equal(cache, written(before, x, 5))
    cache.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        run(cache, x, np.array([5], np.int32))


def test_what_was_computed_from_a_buffer_does_not_see_a_later_write() -> None:
    def call(cache: Tensor, x: Tensor, position: Tensor) -> list[Tensor]:
        early = [cache + 1.0, cache.reshape([2, 4, 8]), cache.cast(F32), cache.T]
        early.append(early[0] * 2.0)
        return [*early, ops.cache_write_key(cache, x, position)]

    cache, x = np.zeros(CACHE, np.float32), np.ones(WRITTEN, np.float32)
    run = compiled(call, BufferType(F32, CACHE), TensorType(F32, WRITTEN), POSITION)
    *early, late = run(cache, x, np.array([0], np.int32))
    assert [float(one.max()) for one in early] == [1, 0, 0, 0, 2]
    assert late.max() == 1


def test_a_result_is_no_view_of_an_input() -> None:
    x = np.zeros(64, np.float32)
    for result in compiled(lambda x: [x, x.reshape([8, 8])], TensorType(F32, [64]))(x):
        result[...] = 1
    assert not x.any()


def test_weights_are_checked_all_at_once_and_copied() -> None:
    one, two = Weight("one", F32, [3]), Weight("two", F32, [])
    graph = Graph("main", lambda x: x * one + two, [TensorType(F32, ["n", 3])])
    compile_ = executor.find().compile
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
