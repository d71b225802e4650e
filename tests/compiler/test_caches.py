"""Caches and buffers: what is written, what it is written into, and what reads it."""

from __future__ import annotations

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import BufferType, Tensor, TensorType, ops
from tests.compiler.execution import F32, Array, compiled, sample
from tests.effort import thinned

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


@pytest.mark.parametrize("dtype", thinned(CACHED, DType.float32, DType.float16))
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("window", "softcap"), thinned([(None, None), (3, 2.0), (2**70, None)], (None, None), (3, 2.0))
)
@pytest.mark.parametrize("chunked", [False, True])
def test_attention_over_a_cache_of_any_form(
    dtype: DType, transposed: bool, window: int | None, softcap: float | None, chunked: bool
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
    result = keys.to_numpy().swapaxes(2, 3) if transposed else keys.to_numpy()
    np.testing.assert_array_equal(result, wanted)
    options = {"scale": 0.5, "window": window, "softcap": softcap, "transposed": transposed}
    options |= {"chunked": chunked}
    got = ops.attention(Tensor(query), keys, values, [4], **options).to_numpy()
    held = np.repeat(wanted.astype(np.float64), 3, 1)
    scores = np.einsum("bihd,bhjd->bhij", query.astype(np.float64), held) * 0.5
    scores = scores if softcap is None else softcap * np.tanh(scores / softcap)
    at, key = 4 + np.arange(3)[:, None], np.arange(8)[None]
    width = min(window or 99, 99)
    first = at - at % width if chunked else at - width + 1
    scores[..., (key > at) | (key < first)] = -np.inf
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
