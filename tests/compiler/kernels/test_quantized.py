"""Kernels of quantized weights against what the codecs decode, in float64.

Activations are quantized as the kernels do, in NumPy; then products are of the same integers, and
only float32 sums differ.
"""

from __future__ import annotations

import numpy as np
import pytest

from maxtool.compiler.cpu_target import cpu_target
from maxtool.compiler.kernels.cpu.integer_dot import instruction_set
from maxtool.compiler.kernels.cpu.quantized_embedding import quantized_embedding
from maxtool.compiler.kernels.cpu.quantized_linear import quantized_linear
from maxtool.compiler.quantized_layout import LAYOUTS, layout_of
from maxtool.compiler.quantized_packing import pack_quantized
from maxtool.quantization import QuantizationEncoding, dequantize
from maxtool.quantization.codec import CODECS
from tests.effort import thinned

from .harness import call, compiled, error, normal

E = QuantizationEncoding
ENCODINGS = thinned(list(LAYOUTS), E.Q4_0, E.Q5_1, E.Q8_0, E.Q4_K, E.Q6_K, E.IQ4_XS)
NAMES = {encoding: encoding.name for encoding in LAYOUTS}
MACHINE = instruction_set(cpu_target())

# Products of the same integers: float32 sums of some dozens of terms.
SAME_INTEGERS = 1e-6


def blocks_of(seed: int, encoding: QuantizationEncoding, n: int, k: int) -> np.ndarray:
    """Any codes, and scales of a sensible size."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 256, (n, encoding.row_bytes(k)), dtype=np.uint8)
    records = rows.view(CODECS[encoding].layout)
    for name in {"d", "m", "dmin"} & set(records.dtype.names or ()):
        records[name] = rng.uniform(1e-3, 1e-2, records[name].shape)
    if encoding is E.MXFP4:
        records["e"] = rng.integers(118, 124, records["e"].shape)
    return rows


def half_steps(x: np.ndarray, span: int) -> np.ndarray:
    """Half the distance between the numbers that each activation may become."""
    top = np.abs(x.reshape(len(x), -1, span)).max(axis=-1).astype("f8")
    return np.repeat(top / 254, span, axis=-1)


def rounded(x: np.ndarray, span: int) -> np.ndarray:
    """Activations as the kernels take them: 127 steps for the largest of each span."""
    parts = x.reshape(len(x), -1, span)
    top = np.maximum(np.abs(parts).max(axis=-1, keepdims=True), np.float32(2.0**-100))
    steps = np.rint(parts * (np.float32(127) / top)).astype("f8")
    return (steps * (top / np.float32(127)).astype("f8")).reshape(x.shape)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=NAMES.get)
def test_products_of_integers(encoding: QuantizationEncoding) -> None:
    function = compiled(quantized_linear, MACHINE, encoding.name)
    span = layout_of(encoding).span
    for n, k in ((37, 4 * 256), (5, 256), (16, 3 * 256)):
        blocks = blocks_of(n, encoding, n, k)
        weight = dequantize(blocks, encoding).astype("f8")
        for rows in (1, 2, 3, 17):
            x = normal(rows, rows, k)
            actual = call(function, x, pack_quantized(blocks, encoding), shape=(rows, n))
            assert error(actual, rounded(x, span) @ weight.T) < SAME_INTEGERS, (n, k, rows)
            # Every activation is off by half a step at most.
            most = half_steps(x, span) @ np.abs(weight).T
            assert (np.abs(actual - x.astype("f8") @ weight.T) <= 1.0001 * most).all()


@pytest.mark.parametrize("encoding", ENCODINGS, ids=NAMES.get)
def test_rows_of_a_table(encoding: QuantizationEncoding) -> None:
    blocks = blocks_of(1, encoding, 37, 512)
    ids = np.array([0, 36, 15, 16, 3, 40, -1], np.int64)
    function = compiled(quantized_embedding, MACHINE, encoding.name, 37, 512)
    actual = call(function, ids, pack_quantized(blocks, encoding), shape=(len(ids), 512))
    expected = dequantize(blocks, encoding)[np.clip(ids, 0, 36)]
    np.testing.assert_allclose(actual, expected, rtol=3e-7, atol=1e-7)
