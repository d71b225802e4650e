"""Properties of quantizers that no recording shows: how far off they are, and for whom."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from maxtool import parallel
from maxtool.errors import MisshapenWeight
from maxtool.quantization import QuantizationEncoding, codec, dequantize, quantize
from tests.effort import examples
from tests.quantization.block_samples import ROW, importances, samples

E = QuantizationEncoding
# The root of the mean squared error that normally distributed numbers may have, beside their own.
ERRORS = {
    E.Q2_K: 0.33,
    E.Q3_K: 0.17,
    E.IQ4_NL: 0.08,
    E.IQ4_XS: 0.08,
    E.Q4_0: 0.10,
    E.Q4_1: 0.09,
    E.Q4_K: 0.08,
    E.Q5_0: 0.05,
    E.Q5_1: 0.05,
    E.Q5_K: 0.04,
    E.Q6_K: 0.02,
}
each_encoding = pytest.mark.parametrize("encoding", list(ERRORS), ids=lambda one: one.name)


def changed(rows: np.ndarray, encoding: E, importance: np.ndarray | None = None) -> np.ndarray:
    """The numbers that quantized rows decode to."""
    return dequantize(quantize(rows, encoding, importance=importance), encoding)


def distance(left: np.ndarray, right: np.ndarray, weights: np.ndarray | float = 1.0) -> float:
    """The root of a weighted sum of squared differences."""
    return float(np.sqrt((weights * np.square(left.astype(np.float64) - right)).sum()))


@each_encoding
def test_error_of_normal_numbers(encoding: E) -> None:
    rows = np.random.default_rng(0).standard_normal((32, 1024), np.float32)
    error = distance(changed(rows, encoding), rows) / distance(rows, 0 * rows)
    assert ERRORS[encoding] / 2 < error < ERRORS[encoding]


@each_encoding
@given(data=st.data())
@settings(max_examples=examples(5, 40), deadline=None)
def test_no_number_leaves_the_range_of_its_block_by_much(encoding: E, data: st.DataObject) -> None:
    size = encoding.elements_per_block
    numbers = st.integers(-1000, 1000).map(lambda number: number / 8)
    rows = data.draw(hnp.arrays(np.float32, (2, size), elements=numbers, fill=st.just(0.0)))
    span = np.maximum(rows.max(axis=1), 0) - np.minimum(rows.min(axis=1), 0)
    errors = np.abs(changed(rows, encoding) - rows).max(axis=1)
    assert (errors <= 0.5 * span).all()


@each_encoding
def test_quantizing_again_changes_less_than_the_first_time(encoding: E) -> None:
    rows = samples()["bell"]
    first = changed(rows, encoding)
    assert distance(changed(first, encoding), first) < 0.75 * distance(first, rows)


@each_encoding
def test_what_is_important_is_closer(encoding: E) -> None:
    rows, importance = samples()["bell"], importances()["spikes"]
    plain, weighted = changed(rows, encoding), changed(rows, encoding, importance)
    assert distance(weighted, rows, importance) < 0.8 * distance(plain, rows, importance)


@each_encoding
def test_blocks_decode_as_the_gguf_package_decodes_them(encoding: E) -> None:
    rows = np.concatenate(list(samples().values()))
    packed = quantize(rows, encoding)
    expected = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType(encoding.gguf_id))
    np.testing.assert_array_equal(dequantize(packed, encoding), expected)


@each_encoding
@pytest.mark.parametrize(
    ("shape", "importance"),
    [
        ((0, 4, 256), (0, 256)),
        ((0, 4, 256), (256,)),
        ((2, 0, 256), (2, 256)),
        ((0, 256), (256,)),
        ((4, 0), (0,)),
        ((2, 4, 0), (2, 0)),
        ((0, 4, 0), (0, 0)),
    ],
)
def test_importance_of_no_elements(
    encoding: E, shape: tuple[int, ...], importance: tuple[int, ...]
) -> None:
    rows = np.zeros(shape, np.float32)
    assert changed(rows, encoding, np.ones(importance, np.float32)).shape == shape


@each_encoding
@pytest.mark.parametrize("importance", ["none", "spikes"])
@pytest.mark.parametrize("cores", [1, 2])
def test_chunks_and_threads_change_nothing(
    encoding: E, importance: str, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, weights = np.tile(samples()["bell"], (4, 1)), importances()[importance]
    whole = quantize(rows, encoding, importance=weights)
    monkeypatch.setattr(codec, "CHUNK_ELEMENTS", 3 * 256)
    monkeypatch.setattr(parallel, "usable_cores", lambda: cores)
    np.testing.assert_array_equal(quantize(rows, encoding, importance=weights), whole)


@each_encoding
def test_rows_that_are_not_of_whole_blocks_are_refused(encoding: E) -> None:
    size = encoding.elements_per_block
    message = f"{encoding.name} needs rows divisible by {size}, not {ROW - 16}"
    with pytest.raises(MisshapenWeight, match=message) as caught:
        quantize(samples()["bell"][:, 16:], encoding, tensor="a.weight")
    assert caught.value.tensor == "a.weight"
