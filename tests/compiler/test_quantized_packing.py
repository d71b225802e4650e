"""Packed quantized weights: the bytes of the file in another order, and back."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxtool.compiler import quantized_packing
from maxtool.compiler.quantized_layout import COLUMNS, LAYOUTS, layout_of
from maxtool.compiler.quantized_packing import (
    pack_quantized,
    quantized_shape,
    unpack_quantized,
)
from maxtool.quantization import QuantizationEncoding

E = QuantizationEncoding
ENCODINGS = st.sampled_from(list(LAYOUTS))


def random_blocks(encoding: QuantizationEncoding, n: int, spans: int) -> np.ndarray:
    rng = np.random.default_rng(n * 100 + spans)
    return rng.integers(0, 256, (n, spans * encoding.block_size), dtype=np.uint8)


@given(ENCODINGS, st.integers(1, 50), st.integers(1, 5))
def test_every_bit_is_kept(encoding: QuantizationEncoding, n: int, spans: int) -> None:
    blocks = random_blocks(encoding, n, spans)
    packed = pack_quantized(blocks, encoding)
    assert packed.shape == quantized_shape(encoding, n, spans * encoding.elements_per_block)
    np.testing.assert_array_equal(unpack_quantized(packed, encoding, n), blocks)
    if rest := n % COLUMNS:
        padded = np.zeros((COLUMNS, blocks.shape[1]), np.uint8)
        padded[:rest] = blocks[n - rest :]
        last = pack_quantized(padded, encoding)
        differing = np.flatnonzero(last != packed[-1:])
        assert not packed[-1:].reshape(-1)[differing].any()  # zeros, whatever a scale of zero is


@pytest.mark.parametrize("encoding", LAYOUTS)
def test_a_record_is_hardly_larger_than_its_blocks(encoding: QuantizationEncoding) -> None:
    blocks = COLUMNS * encoding.block_size
    assert blocks <= layout_of(encoding).nbytes <= 1.04 * blocks


def test_neighbouring_terms_of_all_columns_are_together() -> None:
    blocks = random_blocks(E.Q8_0, 16, 2)
    packed = pack_quantized(blocks, E.Q8_0)
    quants = blocks.reshape(16, 2, 34)[:, :, 2:]
    for group in range(8):
        expected = quants[:, 1, 4 * group : 4 * group + 4].reshape(-1)
        np.testing.assert_array_equal(packed[0, 1, 64 * group : 64 * group + 64], expected)


@pytest.mark.parametrize("encoding", LAYOUTS)
def test_pieces_fill_a_record(encoding: QuantizationEncoding) -> None:
    layout = layout_of(encoding)
    pieces = [(start, field.size) for field in layout.fields for start in layout.starts[field.name]]
    ends = [0] + [start + size for start, size in sorted(pieces)]
    assert [start for start, _ in sorted(pieces)] == ends[:-1]
    assert ends[-1] == layout.nbytes


def test_memory_beyond_the_output_is_bounded() -> None:
    blocks = np.zeros((4096, 128 * E.Q6_K.block_size), np.uint8)
    out = np.empty(quantized_shape(E.Q6_K, 4096, 128 * 256), np.uint8)
    tracemalloc.start()
    pack_quantized(blocks, E.Q6_K, out=out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 32 * quantized_packing.CHUNK


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="rows divisible by 256"):
        quantized_shape(E.Q4_K, 16, 128)
    with pytest.raises(ValueError, match=r"IQ1_S weights are not packed; Q4_0, .* are"):
        quantized_shape(E.IQ1_S, 16, 256)
    with pytest.raises(ValueError, match="rows of bytes"):
        pack_quantized(np.zeros((4, 17), np.uint8), E.Q4_0)
    with pytest.raises(ValueError, match="the packed weight"):
        pack_quantized(np.zeros((4, 18), np.uint8), E.Q4_0, out=np.zeros(3, np.uint8))
