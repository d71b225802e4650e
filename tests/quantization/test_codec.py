"""Codecs against the gguf package, against llama.cpp's files, and against scalar definitions."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from maxtool import parallel
from maxtool.dtype import BY_GGUF
from maxtool.errors import MisshapenWeight, ModelMismatch
from maxtool.quantization import QuantizationEncoding, codec, dequantize, quantize
from maxtool.quantization.codec import ENCODABLE
from maxtool.weights import WeightData
from tests.effort import examples

E = QuantizationEncoding
BY_NAME = sorted(E, key=lambda encoding: encoding.name)
# The gguf package has no decoder for these.
WITHOUT_ORACLE = {E.Q8_1, E.Q8_K, E.Q1_0, E.Q2_0}
# Those that it names: its release for this Python knows no Q2_0.
NAMED = [encoding for encoding in BY_NAME if encoding.name in gguf.GGMLQuantizationType.__members__]
WRITTEN = sorted(ENCODABLE, key=lambda encoding: encoding.name)
# Those that the gguf package writes, too.
WRITTEN_THERE = [each for each in WRITTEN if each.name[-2:] in {"_0", "_1", "P4"}]
FLOAT16_SCALES = [encoding for encoding in WRITTEN if encoding is not E.MXFP4]
DECODABLE = [encoding for encoding in BY_NAME if encoding not in WITHOUT_ORACLE]


def oracle(encoding: E) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType(encoding.gguf_id)


def random_blocks(encoding: E, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rows = (*shape[:-1], encoding.row_bytes(shape[-1]))
    return np.random.default_rng(seed).integers(0, 256, rows, np.uint8)


def same_bits(left: np.ndarray, right: np.ndarray) -> None:
    np.testing.assert_array_equal(left.view(np.uint32), right.view(np.uint32))


@pytest.mark.parametrize("encoding", NAMED, ids=lambda encoding: encoding.name)
def test_sizes_are_those_of_gguf(encoding: E) -> None:
    assert oracle(encoding).name == encoding.name
    elements, size = gguf.GGML_QUANT_SIZES[oracle(encoding)]
    if encoding is not E.Q8_1:  # the package counts two float32; ggml's block has two float16
        assert (encoding.elements_per_block, encoding.block_size) == (elements, size)


@pytest.mark.parametrize("encoding", list(codec.CODECS), ids=lambda encoding: encoding.name)
def test_layouts_have_the_size_of_a_block(encoding: E) -> None:
    assert codec.CODECS[encoding].layout.itemsize == encoding.block_size


@pytest.mark.parametrize("encoding", DECODABLE, ids=lambda encoding: encoding.name)
def test_decoding_has_the_bits_of_gguf(encoding: E) -> None:
    blocks = random_blocks(encoding, (3, 5, 2 * encoding.elements_per_block))
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(blocks, oracle(encoding))
    same_bits(dequantize(blocks, encoding), expected)


@pytest.mark.parametrize("encoding", DECODABLE, ids=lambda encoding: encoding.name)
@given(data=st.data())
@settings(max_examples=examples(12, 30), deadline=None)
def test_decoding_any_bytes_has_the_bits_of_gguf(encoding: E, data: st.DataObject) -> None:
    size = encoding.block_size * data.draw(st.integers(1, 3))
    blocks = data.draw(hnp.arrays(np.uint8, size, fill=st.sampled_from([0, 0x7C, 0x7E, 0xFF])))
    # Twice: where scale and minimum are NaN, gguf gives one for a single block and else the other.
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(np.stack([blocks, blocks]), oracle(encoding))
    same_bits(dequantize(blocks, encoding), expected[0])


def test_of_two_nan_the_scale_is_kept() -> None:
    for encoding, second in ((E.Q4_1, 2), (E.Q5_1, 2), (E.Q4_K, 2), (E.Q5_K, 2), (E.Q2_K, 82)):
        blocks = random_blocks(encoding, (2, encoding.elements_per_block))
        first = second - 2
        blocks[:, first:second] = [0x55, 0x7D]
        blocks[:, second : second + 2] = [0x33, 0xFE]
        with np.errstate(all="ignore"):
            expected = gguf.quants.dequantize(blocks, oracle(encoding))
        same_bits(dequantize(blocks, encoding), expected)
        assert set(expected.view(np.uint32).reshape(-1).tolist()) == {0x7FEAA000}


@pytest.mark.parametrize("encoding", DECODABLE, ids=lambda encoding: encoding.name)
def test_decoding_unaligned_bytes(encoding: E) -> None:
    size = encoding.block_size * 3
    blocks = np.random.default_rng(0).integers(0, 256, size + 1, np.uint8)
    same_bits(dequantize(blocks[1:], encoding), dequantize(blocks[1:].copy(), encoding))
    read_only = blocks[1:].view()
    read_only.flags.writeable = False
    same_bits(dequantize(read_only, encoding), dequantize(blocks[1:].copy(), encoding))


@pytest.mark.parametrize("encoding", [E.Q4_K, E.Q5_0, E.IQ2_S], ids=lambda encoding: encoding.name)
@pytest.mark.parametrize("cores", [1, 2])
def test_decoding_is_the_same_across_chunks_and_threads(
    encoding: E, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = random_blocks(encoding, (70, 3 * encoding.elements_per_block))
    whole = dequantize(blocks, encoding)
    monkeypatch.setattr(codec, "CHUNK_ELEMENTS", 2 * encoding.elements_per_block)
    monkeypatch.setattr(parallel, "usable_cores", lambda: cores)
    same_bits(dequantize(blocks, encoding), whole)


@pytest.mark.parametrize("encoding", WRITTEN, ids=lambda encoding: encoding.name)
def test_encoding_is_the_same_across_chunks(encoding: E, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).standard_normal((70, 3 * encoding.elements_per_block))
    whole = quantize(rows, encoding)
    monkeypatch.setattr(codec, "CHUNK_ELEMENTS", 2 * encoding.elements_per_block)
    np.testing.assert_array_equal(quantize(rows, encoding), whole)
    rows[-1, -1] = np.nan
    with pytest.raises(ModelMismatch, match="NaN or infinity"):
        quantize(rows, encoding)


def test_memory_of_decoding_is_bounded() -> None:
    blocks = random_blocks(E.IQ2_XXS, (64, 1 << 16))
    dequantize(blocks[:1], E.IQ2_XXS)  # tables
    tracemalloc.start()
    result = dequantize(blocks, E.IQ2_XXS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < result.nbytes + 8_000_000


def test_plain_types_have_the_bits_of_gguf() -> None:
    values = np.random.default_rng(0).standard_normal((64, 1024), np.float32)
    weight = WeightData.from_numpy(values, "w")
    for name in ("F32", "F16", "BF16"):
        kind = gguf.GGMLQuantizationType[name]
        stored = weight.astype(BY_GGUF[kind.value]).data
        assert stored.tobytes() == gguf.quants.quantize(values, kind).tobytes()


def test_q8_1_decodes_as_defined() -> None:
    block = struct.pack("<ee32b", 0.5, 99.0, *range(-16, 16))
    decoded = dequantize(np.frombuffer(block, np.uint8), E.Q8_1)
    assert decoded.tolist() == [0.5 * value for value in range(-16, 16)]


def test_q8_k_decodes_as_defined() -> None:
    quants = [index - 128 for index in range(256)]
    block = struct.pack("<f256b16h", 0.3, *quants, *range(16))
    decoded = dequantize(np.frombuffer(block, np.uint8), E.Q8_K)
    same_bits(decoded, np.float32(0.3) * np.array(quants, np.float32))


def test_q1_0_decodes_as_defined() -> None:
    bits = np.random.default_rng(0).integers(0, 2, 128)
    packed = np.packbits(bits.astype(np.uint8), bitorder="little").tobytes()
    block = np.frombuffer(struct.pack("<e", 0.375) + packed, np.uint8)
    assert dequantize(block, E.Q1_0).tolist() == [0.375 if bit else -0.375 for bit in bits]


def test_q2_0_decodes_as_defined() -> None:
    quants = np.random.default_rng(0).integers(0, 4, 64).tolist()
    fours = [quants[first : first + 4] for first in range(0, 64, 4)]
    packed = bytes(a | b << 2 | c << 4 | d << 6 for a, b, c, d in fours)
    block = np.frombuffer(struct.pack("<e", 0.375) + packed, np.uint8)
    assert dequantize(block, E.Q2_0).tolist() == [0.375 * (quant - 1) for quant in quants]


def test_every_encoding_has_a_decoder() -> None:
    assert set(codec.CODECS) == set(E)


def test_decoding_refuses_partial_blocks() -> None:
    with pytest.raises(MisshapenWeight, match="35 bytes are not whole Q8_0 blocks"):
        dequantize(np.zeros((2, 35), np.uint8), E.Q8_0)


# Scales that a float16 can hold, and no magnitudes whose reciprocal overflows.
MAGNITUDES = st.floats(2.0**-20, 60000, width=32)
# Few different ones, so that extremes tie; of zeros of both signs gguf takes another than ggml.
FEW = st.sampled_from([0.0, 1.0, -1.0, 1.5, -1.5, 3.0, -3.0])
VALUES = st.one_of(FEW, MAGNITUDES, MAGNITUDES.map(lambda value: -value))
SHAPES = st.sampled_from([(1,), (3, 2), (2, 2, 1)])  # in blocks


def rows_of(encoding: E, elements: st.SearchStrategy[float]) -> st.SearchStrategy[np.ndarray]:
    block = encoding.elements_per_block
    shapes = SHAPES.map(lambda shape: (*shape[:-1], shape[-1] * block))
    fill = st.sampled_from([0.0, 0.25])
    return hnp.arrays(np.float32, shapes, elements=elements, fill=fill)


@pytest.mark.parametrize("encoding", WRITTEN_THERE, ids=lambda encoding: encoding.name)
@pytest.mark.parametrize("elements", [VALUES, FEW], ids=["any", "few"])
@given(data=st.data())
@settings(max_examples=examples(15, 40), deadline=None)
def test_encoding_has_the_bits_of_gguf(
    encoding: E, elements: st.SearchStrategy[float], data: st.DataObject
) -> None:
    rows = data.draw(rows_of(encoding, elements))
    with np.errstate(all="ignore"):
        expected = gguf.quants.quantize(rows, oracle(encoding))
    np.testing.assert_array_equal(quantize(rows, encoding), expected)


@pytest.mark.parametrize("scale", [2.0**-130, 2.0**-126, 2.0**-100, 1.0, 2.0**120, 2.0**126])
def test_mxfp4_has_the_bits_of_gguf_at_every_scale(scale: float) -> None:
    steps = np.arange(-2.0, 2.0, 2.0**-9)[: 32 * 60].astype(np.float32) * np.float32(scale)
    rows = np.random.default_rng(0).permutation(steps).reshape(-1, 32)
    infinity = np.copysign(np.float32(np.inf), rows)
    with np.errstate(all="ignore"):
        for values in (rows, np.nextafter(rows, np.float32(0)), np.nextafter(rows, infinity)):
            expected = gguf.quants.quantize(values, oracle(E.MXFP4))
            np.testing.assert_array_equal(quantize(values, E.MXFP4), expected)


@pytest.mark.parametrize("code", range(256))
def test_mxfp4_scales_are_those_of_gguf(code: int) -> None:
    block = np.frombuffer(bytes([code, *range(16)]), np.uint8)
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(block, oracle(E.MXFP4))
    same_bits(dequantize(block, E.MXFP4), expected)


@pytest.mark.parametrize("code", range(256))
def test_nvfp4_scales_are_those_of_gguf(code: int) -> None:
    block = np.frombuffer(bytes([code] * 4 + [*range(32)]), np.uint8)
    same_bits(dequantize(block, E.NVFP4), gguf.quants.dequantize(block, oracle(E.NVFP4)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("encoding", WRITTEN_THERE, ids=lambda encoding: encoding.name)
def test_encoding_random_rows_has_the_bits_of_gguf(encoding: E, seed: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((300, 1024), np.float32)
    expected = gguf.quants.quantize(rows, oracle(encoding))
    np.testing.assert_array_equal(quantize(rows, encoding), expected)


def test_q8_0_rounds_halves_away_from_zero() -> None:
    row = np.zeros(32, np.float32)
    row[:6] = [127, 0.5, -0.5, 1.5, -2.5, np.nextafter(np.float32(0.5), np.float32(0))]
    assert quantize(row, E.Q8_0)[2:8].view(np.int8).tolist() == [127, 1, -1, 2, -3, 0]


def test_a_zero_block_is_all_zero_bytes() -> None:
    assert not quantize(np.zeros(64, np.float32), E.Q8_0).any()


def test_a_subnormal_block_decodes_to_zero() -> None:
    row = np.full(32, 1e-41, np.float32)
    assert not dequantize(quantize(row, E.Q8_0), E.Q8_0).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_encoding_refuses_what_is_not_finite(bad: float) -> None:
    row = np.zeros(32, np.float32)
    row[3] = bad
    with pytest.raises(ModelMismatch, match="Q8_0 cannot hold NaN or infinity") as caught:
        quantize(row, E.Q8_0, tensor="a.weight")
    assert caught.value.tensor == "a.weight"


@pytest.mark.parametrize("encoding", FLOAT16_SCALES, ids=lambda encoding: encoding.name)
def test_encoding_refuses_scales_beyond_float16(encoding: E) -> None:
    row = np.linspace(-3e38, 3e38, 256, dtype=np.float32)
    with pytest.raises(ModelMismatch, match="too large"):
        quantize(row, encoding)


def test_encoding_refuses_partial_rows_and_scalars() -> None:
    with pytest.raises(MisshapenWeight, match="divisible by 32, not 33"):
        quantize(np.zeros((2, 33), np.float32), E.Q8_0)
    with pytest.raises(MisshapenWeight, match="a scalar cannot be stored as Q8_0"):
        quantize(np.float32(1), E.Q8_0)


def test_an_encoding_without_encoder_is_refused_by_name() -> None:
    with pytest.raises(ModelMismatch, match="IQ2_XS cannot be written; IQ4_NL, IQ4_XS, MXFP4"):
        quantize(np.zeros(256, np.float32), E.IQ2_XS)


def test_other_float_types_are_converted_first() -> None:
    rows = np.random.default_rng(0).standard_normal((4, 32))
    for dtype in (np.float16, np.float64):
        given_rows = rows.astype(dtype)
        expected = gguf.quants.quantize(given_rows.astype(np.float32), oracle(E.Q8_0))
        np.testing.assert_array_equal(quantize(given_rows, E.Q8_0), expected)


@pytest.mark.parametrize("shape", [(0, 32), (0,), (3, 0)])
def test_empty_arrays(shape: tuple[int, ...]) -> None:
    packed = quantize(np.zeros(shape, np.float32), E.Q8_0)
    assert packed.size == 0
    assert dequantize(packed, E.Q8_0).shape == shape


LLAMA_FILES = [
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "outtype-q8_0"),
    *("Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K"),
]


@pytest.mark.reference
@pytest.mark.parametrize("kind", LLAMA_FILES)
def test_encoding_has_the_bits_of_llama_cpp(reference: Path, kind: str) -> None:
    folder = reference / "llama"
    source = {t.name: t for t in gguf.GGUFReader(folder / "llama-f32.gguf").tensors}
    compared = 0
    for tensor in gguf.GGUFReader(folder / f"llama-{kind}.gguf").tensors:
        encoding = E.__members__.get(tensor.tensor_type.name)
        if encoding in ENCODABLE:
            packed = quantize(np.array(source[tensor.name].data), encoding)
            np.testing.assert_array_equal(packed, tensor.data, err_msg=tensor.name)
            compared += 1
    assert compared > 10
