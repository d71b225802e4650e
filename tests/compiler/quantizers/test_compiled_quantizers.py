"""Compiled quantizers write the bytes of the NumPy codecs, and leave to these what is odd."""

from __future__ import annotations

import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from maxtool.compiler.cpu_target import LEVELS, CpuTarget, cpu_target
from maxtool.compiler.quantizers import compiled_quantizers, kept_libraries, quantizer_kernels
from maxtool.compiler.quantizers.compiled_quantizers import SOURCES, CompiledQuantizer
from maxtool.compiler.quantizers.quantizer_kernels import NAME, QUANTIZERS, kernel_for, module_for
from maxtool.errors import ModelMismatch
from maxtool.quantization import QuantizationEncoding, acceleration, codec, quantize
from maxtool.quantization.acceleration import compiled_for
from maxtool.quantization.importance import BlockWeights
from tests.compiler.kernels.assembly import assembly
from tests.effort import examples
from tests.quantization.block_samples import samples

E = QuantizationEncoding
NEGATIVE = Path(__file__).parents[2] / "data" / "negative_scales.npz"
HOST = cpu_target()
SMALLER = {
    name: target
    for name in LEVELS
    if set((target := cpu_target(f"cpu:{name}")).features) <= set(HOST.features)
}
# Multiplications and additions in one instruction, of x86 and aarch64.
CONTRACTED = re.compile(r"\tv?fn?m(?:add|sub|la|ls)\w*\t")

each_encoding = pytest.mark.parametrize("encoding", list(QUANTIZERS), ids=lambda one: one.name)


# Those that take notice of importance.
WEIGHED = [one for one in QUANTIZERS if one is not E.Q8_0]
each_weighed = pytest.mark.parametrize("encoding", WEIGHED, ids=lambda one: one.name)


@cache
def compiled(
    encoding: E, dtype: str = "float32", target: CpuTarget = HOST, *, weighed: bool = False
) -> CompiledQuantizer:
    storages = dict(SOURCES.values())
    module = module_for(encoding, dtype, target, weighed=weighed)
    return CompiledQuantizer(target.tile.width, storages[dtype], module[NAME])


def by_both(
    values: np.ndarray, encoding: E, importance: np.ndarray | None = None, *, works: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of the codec, and those that compiled code and the codec write together."""
    expected = quantize(values, encoding, importance=importance)
    weighed = importance is not None
    with compiled_for([encoding]):
        found = acceleration.find_quantizer(encoding, values.dtype, weighed=weighed)
        assert (found is not None) is works
        return expected, quantize(values, encoding, importance=importance)


def importances(shape: tuple[int, ...]) -> np.ndarray:
    """Importance of several sizes, a tenth of it zero."""
    generator = np.random.default_rng(3)
    sizes = generator.random(shape, np.float32) ** 8
    return np.where(generator.random(shape) < 0.1, np.float32(0), sizes)


@pytest.mark.sampled
@each_encoding
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", list(samples()))
def test_bytes_of_the_codec(encoding: E, dtype: str, name: str) -> None:
    values = samples()[name]
    if dtype == "float16":
        values = np.clip(values, -60000, 60000)
    values = values.astype(getattr(ml_dtypes, dtype, dtype))
    expected, actual = by_both(values, encoding)
    np.testing.assert_array_equal(actual, expected)


@each_weighed
@pytest.mark.parametrize("name", list(samples()))
def test_bytes_of_the_codec_by_importance(encoding: E, name: str) -> None:
    values = samples()[name]
    expected, actual = by_both(values, encoding, importances(values.shape[-1:]))
    np.testing.assert_array_equal(actual, expected)


@each_weighed
@pytest.mark.parametrize("counted", [7, 50])
def test_few_columns_that_count(encoding: E, counted: int) -> None:
    """Scales become negative then, whose levels go beyond the field that they are stored in."""
    generator = np.random.default_rng(5)
    values = generator.standard_normal((1500, 256), np.float32)
    importance = np.zeros(256, np.float32)
    importance[generator.choice(256, counted, replace=False)] = generator.random(counted)
    expected, actual = by_both(values, encoding, importance)
    np.testing.assert_array_equal(actual, expected)


def test_negative_scales_as_ggml_has_them() -> None:
    with np.load(NEGATIVE) as arrays:
        for values, importance, blocks in zip(*map(arrays.get, arrays.files), strict=True):
            _, actual = by_both(values, E.Q4_K, importance)
            np.testing.assert_array_equal(actual, blocks)


@each_weighed
@pytest.mark.parametrize("number", [0.0, 1.0, 2.0**-140, 2.0**100])
def test_importance_of_any_size(encoding: E, number: float) -> None:
    values = samples()["outliers"]
    importance = np.full(values.shape[-1:], number, np.float32)
    expected, actual = by_both(values, encoding, importance)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.sampled
@each_weighed
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_importance_of_several_matrices(encoding: E, dtype: str) -> None:
    values = np.random.default_rng(2).standard_normal((3, 5, 512), np.float32)
    values = values.astype(getattr(ml_dtypes, dtype, dtype))
    expected, actual = by_both(values, encoding, importances((3, 512)))
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.sampled
@each_weighed
@given(data=st.data())
@settings(max_examples=examples(10, 100), deadline=None)
def test_bytes_of_the_codec_for_any_numbers_and_importance(
    encoding: E, data: st.DataObject
) -> None:
    largest = data.draw(st.sampled_from([1.0, 2.0**-140, 2.0**-30, 2.0**13]))
    numbers = st.floats(-float(largest), float(largest), width=32)
    size = encoding.elements_per_block
    rows = data.draw(st.integers(1, 3))
    values = data.draw(hnp.arrays(np.float32, (rows, size), elements=numbers, fill=st.just(0.0)))
    most = data.draw(st.sampled_from([1.0, 2.0**-120, 2.0**60]))
    weights = st.floats(0, float(most), width=32)
    importance = data.draw(hnp.arrays(np.float32, size, elements=weights, fill=st.just(0.0)))
    expected, actual = by_both(values, encoding, importance)
    np.testing.assert_array_equal(actual, expected)


def test_what_searches_for_nothing_takes_no_notice_of_importance() -> None:
    values = samples()["bell"]
    expected = quantize(values, E.Q8_0)
    with compiled_for([E.Q8_0]):
        actual = quantize(values, E.Q8_0, importance=importances(values.shape[-1:]))
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.sampled
@each_encoding
@pytest.mark.parametrize("cpu", list(SMALLER))
def test_bytes_on_other_cpus(encoding: E, cpu: str) -> None:
    values = np.concatenate(list(samples().values())).reshape(-1, encoding.elements_per_block)
    expected = quantize(values, encoding)
    actual = expected.copy()
    for run in (quantizer := compiled(encoding, "float32", SMALLER[cpu]))(values, actual):
        actual[run] = quantize(values[run], encoding)
    assert quantizer.batch == SMALLER[cpu].tile.width
    np.testing.assert_array_equal(actual, expected)


@each_encoding
def test_little_is_left_to_the_codec(encoding: E) -> None:
    values = samples()["groups of several sorts"].reshape(-1, encoding.elements_per_block)
    records = np.empty((len(values), encoding.block_size), np.uint8)
    assert compiled(encoding)(values, records) == []
    np.testing.assert_array_equal(records, quantize(values, encoding))


@pytest.mark.sampled
@each_encoding
@pytest.mark.parametrize("blocks", [0, 1, 15, 16, 17, 331])
def test_any_number_of_blocks(encoding: E, blocks: int) -> None:
    shape = (blocks, encoding.elements_per_block)
    values = np.random.default_rng(blocks).standard_normal(shape, np.float32)
    expected, actual = by_both(values, encoding)
    np.testing.assert_array_equal(actual, expected)


@each_encoding
def test_arrays_that_lie_anywhere(encoding: E) -> None:
    size = encoding.elements_per_block
    raw = np.random.default_rng(0).standard_normal(64 * size + 1, np.float32)[1:]
    raw.flags.writeable = False
    for values in (raw.reshape(-1, size), raw.reshape(-1, 2 * size)[:, size:]):
        expected, actual = by_both(values, encoding)
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.sampled
@each_encoding
@given(data=st.data())
@settings(max_examples=examples(20, 200), deadline=None)
def test_bytes_of_the_codec_for_any_numbers(encoding: E, data: st.DataObject) -> None:
    largest = data.draw(st.sampled_from([1.0, 3.0, 2.0**-140, 2.0**-30, 2.0**13]))
    numbers = st.floats(-float(largest), float(largest), width=32)
    shape = (data.draw(st.integers(1, 3)), encoding.elements_per_block)
    fill = data.draw(st.sampled_from([0.0, -0.0, largest, -largest]))
    values = data.draw(hnp.arrays(np.float32, shape, elements=numbers, fill=st.just(fill)))
    expected, actual = by_both(values, encoding)
    np.testing.assert_array_equal(actual, expected)


@each_encoding
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("place", [0, 5000])
def test_what_cannot_be_written_is_refused(encoding: E, number: float, place: int) -> None:
    values = samples()["bell"][:2].repeat(4, axis=0)
    values.reshape(-1)[place] = number
    with pytest.raises(ModelMismatch) as expected:
        quantize(values, encoding, tensor="a.weight")
    with compiled_for([encoding]), pytest.raises(ModelMismatch) as caught:
        quantize(values, encoding, tensor="a.weight")
    assert str(caught.value) == str(expected.value)


@pytest.mark.sampled
@each_encoding
@pytest.mark.parametrize("cpu", ["znver4", "x86-64-v3", "x86-64", "neoverse-n1"])
def test_no_product_is_contracted_with_a_sum(encoding: E, cpu: str) -> None:
    target = cpu_target(f"cpu:{cpu}")
    kernel = kernel_for(encoding, "float32", target, weighed=False)
    assert not CONTRACTED.search(assembly(target, kernel))


@pytest.mark.sampled
@each_weighed
@pytest.mark.parametrize("cpu", ["x86-64-v3", "neoverse-n1"])
def test_no_product_is_contracted_where_errors_are_weighed(encoding: E, cpu: str) -> None:
    target = cpu_target(f"cpu:{cpu}")
    kernel = kernel_for(encoding, "float32", target, weighed=True)
    assert not CONTRACTED.search(assembly(target, kernel))


def test_contractions_would_be_seen() -> None:
    for line in ("\tvfmadd231ps\t%zmm0", "\tfmla\tv0.4s", "\tvfnmsub213ps\t%ymm1"):
        assert CONTRACTED.search(line)


@pytest.fixture
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceleration, "_registered", [])
    monkeypatch.delitem(sys.modules, acceleration.PROVIDER)


@pytest.mark.usefixtures("nothing_registered")
def test_numpy_where_there_is_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tvm_ffi", None)  # as if it were not installed
    expected, actual = by_both(samples()["bell"], E.Q8_0, works=False)
    np.testing.assert_array_equal(actual, expected)


def test_numpy_where_the_compiler_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no such target")

    compiled_quantizers.quantizer.cache_clear()
    monkeypatch.setattr(kept_libraries, "find", lambda *_: None)
    monkeypatch.setattr(quantizer_kernels, "block_quantizer", fail)
    told: list[str] = []
    values = samples()["bell"]
    with compiled_for([E.Q8_0], told.append):
        actual = [codec.quantize(values, E.Q8_0) for _ in range(2)]
    expected = codec.quantize(values, E.Q8_0)
    for each in actual:
        np.testing.assert_array_equal(each, expected)
    (warning,) = told
    assert "Q8_0" in warning
    assert "no such target" in warning


def test_threads_that_wait_do_not_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, begun = [], threading.Barrier(4)

    def fail(*what: object) -> None:
        tried.append(what)
        time.sleep(0.05)  # so that the others wait
        raise RuntimeError("no such target")

    def ask() -> object:
        begun.wait()
        return acceleration.find_quantizer(E.Q8_0, np.dtype(np.float32))

    monkeypatch.setattr(acceleration, "_registered", [fail])
    told: list[str] = []
    with compiled_for([E.Q8_0], told.append), ThreadPoolExecutor(4) as pool:
        found = [pool.submit(ask) for _ in range(4)]
        assert [each.result() for each in found] == [None] * 4
    assert len(tried) == len(told) == 1


def test_importance_that_is_read_only_or_strided() -> None:
    values = samples()["bell"]
    wide = importances((2 * values.shape[-1],))
    wide.flags.writeable = False
    for importance in (
        wide[: values.shape[-1]],
        wide[::2],
        np.broadcast_to(wide[:1], wide[::2].shape),
    ):
        expected, actual = by_both(values, E.Q4_K, importance)
        np.testing.assert_array_equal(actual, expected)
    blocks = values.reshape(-1, 256)
    weights = BlockWeights(
        wide[::2].reshape(-1, 256),
        np.arange(2 * len(blocks))[::2] % (wide.size // 512),
        np.broadcast_to(np.float32(0), len(blocks)),
    )
    in_order = BlockWeights(*(np.array(array, order="C") for array in weights))
    records = np.empty((2, len(blocks), E.Q4_K.block_size), np.uint8)
    for passed, record in zip((weights, in_order), records, strict=True):
        compiled(E.Q4_K, weighed=True)(blocks, record, passed)
    np.testing.assert_array_equal(*records)


def test_blocks_of_wishes_may_overlap() -> None:
    """Two conversions of one process end in any order."""
    one, other = compiled_for([E.Q8_0]), compiled_for([E.Q8_0])
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert acceleration.find_quantizer(E.Q8_0, np.dtype(np.float32)) is not None
    other.__exit__(None, None, None)
    assert acceleration.find_quantizer(E.Q8_0, np.dtype(np.float32)) is None


def test_only_encodings_that_have_one_load_the_compiler() -> None:
    assert QUANTIZERS.keys() == acceleration.COMPILED


def test_they_are_used_where_there_is_enough_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    little = {(E.Q8_0, False): 1000, (E.Q4_K, False): 1000}
    with codec.accelerated(little):
        assert acceleration.find_quantizer(E.Q8_0, np.dtype(np.float32)) is None
    monkeypatch.setattr(codec, "WORTHWHILE", {True: 1000, False: 10_000})
    for weighed in (False, True):  # without importance nothing is searched for
        with codec.accelerated({(E.Q4_0, weighed): 1000}):
            found = acceleration.find_quantizer(E.Q4_0, np.dtype(np.float32))
            assert (found is not None) is weighed
    monkeypatch.setattr(codec, "WORTHWHILE", {True: 2000, False: 2000})
    with codec.accelerated(little):
        assert acceleration.find_quantizer(E.Q8_0, np.dtype(np.float32)) is not None
        assert acceleration.find_quantizer(E.Q8_0, np.dtype(np.float64)) is None
    assert acceleration.find_quantizer(E.Q8_0, np.dtype(np.float32)) is None
