"""Kernels of quantized weights against what the codecs decode, in float64.

Activations are quantized as the kernels do, in NumPy; then products are of the same integers, and
only float32 sums differ.
"""

from __future__ import annotations

import numpy as np
import pytest

from maxtool.compiler.kernels.cpu.integer_dot import instruction_set
from maxtool.compiler.kernels.cpu.quantized_embedding import quantized_embedding
from maxtool.compiler.kernels.cpu.quantized_experts import quantized_expert_linear
from maxtool.compiler.kernels.cpu.quantized_linear import quantized_linear
from maxtool.compiler.quantized_layout import LAYOUTS, layout_of
from maxtool.compiler.quantized_packing import pack_quantized
from maxtool.quantization import QuantizationEncoding, dequantize, quantize
from maxtool.quantization.codec import CODECS
from tests.effort import thinned

from .harness import HOST, call, compiled, error, normal
from .quantized_numbers import SAME_INTEGERS, away_from_ties, blocks_of, half_steps, rounded

E = QuantizationEncoding
ENCODINGS = thinned(list(LAYOUTS), E.Q4_0, E.Q5_1, E.Q8_0, E.Q4_K, E.Q6_K, E.IQ4_XS)
NAMES = {encoding: encoding.name for encoding in LAYOUTS}
MACHINE = instruction_set(HOST)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=NAMES.get)
def test_products_of_integers(encoding: QuantizationEncoding) -> None:
    function = compiled(quantized_linear, MACHINE, encoding.name)
    span = layout_of(encoding).span
    for n, k, most in ((37, 4 * 256, 35), (5, 256, 511), (16, 3 * 256, 35)):
        blocks = blocks_of(n, encoding, n, k)
        weight = dequantize(blocks, encoding).astype("f8")
        for rows in (1, 2, 3, 7, most):
            x = away_from_ties(normal(rows, rows, k), span)
            actual = call(function, x, pack_quantized(blocks, encoding), shape=(rows, n))
            assert error(actual, rounded(x, span) @ weight.T) < SAME_INTEGERS, (n, k, rows)
            # Every activation is off by half a step at most.
            bound = half_steps(x, span) @ np.abs(weight).T
            assert (np.abs(actual - x.astype("f8") @ weight.T) <= 1.0001 * bound).all()


@pytest.mark.parametrize("encoding", ENCODINGS, ids=NAMES.get)
def test_activations_of_one_sign(encoding: QuantizationEncoding) -> None:
    """Minima take off most of what products of quants from 0 on would add up to."""
    function, span = compiled(quantized_linear, MACHINE, encoding.name), layout_of(encoding).span
    n, k = 37, 4096
    blocks = quantize(normal(n, n, k), encoding)
    weight = dequantize(blocks, encoding).astype("f8")
    for rows in (1, 3, 37):
        x = away_from_ties(np.abs(normal(rows, rows, k)), span)
        actual = call(function, x, pack_quantized(blocks, encoding), shape=(rows, n))
        assert error(actual, rounded(x, span) @ weight.T) < 10 * SAME_INTEGERS, rows


@pytest.mark.parametrize("encoding", ENCODINGS, ids=NAMES.get)
def test_rows_of_a_table(encoding: QuantizationEncoding) -> None:
    blocks = blocks_of(1, encoding, 37, 512)
    ids = np.array([0, 36, 15, 16, 3, 40, -1], np.int64)
    function = compiled(quantized_embedding, MACHINE, encoding.name, 37, 512)
    actual = call(function, ids, pack_quantized(blocks, encoding), shape=(len(ids), 512))
    expected = dequantize(blocks, encoding)[np.clip(ids, 0, 36)]
    np.testing.assert_allclose(actual, expected, rtol=3e-7, atol=1e-7)


@pytest.mark.parametrize("encoding", thinned(list(LAYOUTS), E.Q8_0, E.Q4_K), ids=NAMES.get)
@pytest.mark.parametrize(("rows", "per_row"), [(1, 2), (3, 1), (40, 2)])
def test_experts(encoding: QuantizationEncoding, rows: int, per_row: int) -> None:
    experts, n, k = 4, 21, 512
    blocks = np.stack([blocks_of(e, encoding, n, k) for e in range(experts)])
    packed = np.stack([pack_quantized(each, encoding) for each in blocks])
    weight = dequantize(blocks, encoding).astype("f8")
    chosen = np.random.default_rng(rows).integers(-1, experts + 1, rows * per_row)
    x = normal(rows, rows, k)
    function = compiled(quantized_expert_linear, MACHINE, encoding.name)
    actual = call(function, x, packed, chosen, shape=(rows * per_row, n))
    inputs = rounded(x, layout_of(encoding).span)
    pairs = zip(np.repeat(inputs, per_row, axis=0), chosen.clip(0, experts - 1), strict=True)
    expected = np.stack([weight[expert] @ row for row, expert in pairs])
    assert error(actual, expected) < SAME_INTEGERS


def test_no_rows() -> None:
    function = compiled(quantized_linear, MACHINE, "Q8_0")
    packed = pack_quantized(blocks_of(0, E.Q8_0, 5, 32), E.Q8_0)
    assert call(function, np.zeros((0, 32), "f4"), packed, shape=(0, 5)).shape == (0, 5)


@pytest.mark.parametrize("n", [1, 40])
def test_bias(n: int) -> None:
    function = compiled(quantized_linear, MACHINE, "Q8_0", True)
    blocks, bias = blocks_of(0, E.Q8_0, n, 64), normal(3, n)
    for rows in (1, 13, 37):
        x = normal(rows, rows, 64)
        actual = call(function, x, pack_quantized(blocks, E.Q8_0), bias, shape=(rows, n))
        expected = rounded(x, 32) @ dequantize(blocks, E.Q8_0).T + bias
        assert error(actual, expected) < SAME_INTEGERS


@pytest.mark.parametrize("name", ["Q8_0", "Q4_1", "Q4_K"])
@pytest.mark.parametrize("rows", [1, 5, 37])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_makes_its_row_nan(name: str, rows: int, value: float) -> None:
    blocks = blocks_of(0, E[name], 21, 512)
    x = normal(0, rows, 512)
    x[-1, 300] = value
    packed = pack_quantized(blocks, E[name])
    actual = call(compiled(quantized_linear, MACHINE, name), x, packed, shape=(rows, 21))
    assert np.isnan(actual[-1]).all()
    assert np.isfinite(actual[:-1]).all()


# float16: the least number, the largest subnormal one, zeros, and what is not finite.
SCALES = np.array([2.0**-24, 2.0**-14 - 2.0**-24, 0.0, -0.0, -0.01, np.inf, -np.inf, np.nan])
# Exponents of MXFP4: the least ones, of which two are subnormal float32, and large ones.
EXPONENTS = np.array([0, 1, 2, 127, 200, 3, 4, 5])


def of_any_scale(encoding: QuantizationEncoding, k: int) -> np.ndarray:
    """Blocks of 21 rows, of which row ``i`` has ``SCALES[i]`` in all its blocks."""
    blocks = blocks_of(0, encoding, 21, k)
    records = blocks.view(CODECS[encoding].layout)
    field, scales = ("e", EXPONENTS) if encoding is E.MXFP4 else ("d", SCALES)
    records[field][: len(scales)] = scales.reshape(-1, *[1] * (records[field].ndim - 1))
    return blocks


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("encoding", ENCODINGS, ids=NAMES.get)
def test_scales_of_any_size(encoding: QuantizationEncoding) -> None:
    """Columns of small scales are as exact as others, and what is not finite stays in its own."""
    k = 512
    blocks = of_any_scale(encoding, k)
    packed, weight = pack_quantized(blocks, encoding), dequantize(blocks, encoding)
    finite = np.isfinite(weight).all(axis=1)
    assert finite.sum() == (21 if encoding is E.MXFP4 else 18)
    linear = compiled(quantized_linear, MACHINE, encoding.name)
    for rows in (1, 3, 37):
        x = normal(rows, rows, k)
        actual = call(linear, x, packed, shape=(rows, 21))
        assert not np.isfinite(actual[:, ~finite]).any()
        expected = rounded(x, layout_of(encoding).span) @ weight[finite].astype("f8").T
        off = np.linalg.norm(actual[:, finite] - expected, axis=0)
        assert (off <= 4 * SAME_INTEGERS * np.linalg.norm(expected, axis=0)).all()
    table = compiled(quantized_embedding, MACHINE, encoding.name, 21, k)
    actual = call(table, np.arange(21), packed, shape=(21, k))
    np.testing.assert_allclose(actual, weight, rtol=3e-7, atol=1e-7)


@pytest.mark.parametrize("name", ["Q8_0", "Q4_1", "Q6_K"])
def test_sizes_of_activations(name: str) -> None:
    blocks = blocks_of(0, E[name], 21, 512)
    weight, packed = dequantize(blocks, E[name]).astype("f8"), pack_quantized(blocks, E[name])
    function = compiled(quantized_linear, MACHINE, name)
    for size in (0.0, 2.0**-149, 2.0**-120, 2.0**-90, 1.0, 2.0**100):
        x = normal(1, 4, 512) * np.float32(size)
        actual = call(function, x, packed, shape=(4, 21))
        # Steps are no finer than those of a largest magnitude of 2 ** -100.
        least = np.abs(weight).sum(axis=1) * 2.0**-107
        most = half_steps(x, layout_of(E[name]).span) @ np.abs(weight).T + least
        assert (np.abs(actual - x.astype("f8") @ weight.T) <= 1.001 * most).all()


@pytest.mark.parametrize("encoding", ENCODINGS, ids=NAMES.get)
@pytest.mark.parametrize("fill", [0x00, 0x7F, 0x80, 0xFF])
def test_extreme_quants_times_extreme_activations(
    encoding: QuantizationEncoding, fill: int
) -> None:
    """Products and sums of extreme numbers fit the integers that they are added in."""
    blocks = blocks_of(0, encoding, 16, 512)
    records = blocks.view(CODECS[encoding].layout)
    for plane in layout_of(encoding).planes:
        records[plane.field].view(np.uint8)[...] = fill
    weight, packed = dequantize(blocks, encoding).astype("f8"), pack_quantized(blocks, encoding)
    function = compiled(quantized_linear, MACHINE, encoding.name)
    signs = np.random.default_rng(1).choice([-1, 1], 512)
    for x in (np.ones((2, 512), "f4"), -np.ones((2, 512), "f4"), np.stack([signs] * 2)):
        for rows in (1, 2):
            actual = call(function, x[:rows].astype("f4"), packed, shape=(rows, 16))
            size = np.abs(x[:rows]) @ np.abs(weight).T
            assert (np.abs(actual - x[:rows] @ weight.T) <= 1e-6 * size).all()
